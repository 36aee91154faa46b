#include "ring/plan/verify.h"

#include <algorithm>
#include <optional>

#include "ring/base/hash.h"
#include "ring/plan/goal.h"
#include "ring/plan/machine.h"
#include "ring/plan/structure.h"

namespace rondo {
namespace {

Verdict verdict_of(std::optional<std::string> failure) {
  return failure ? Verdict{false, std::move(*failure)} : Verdict{};
}

// Structure first: the later checks index by what it has checked.
std::optional<std::string> values_failure(std::span<const Plan> plans, Scaling scaling, Wire wire) {
  if (auto failure = check_structure(plans)) return failure;
  for (const Plan& plan : plans) {
    if (auto failure = check_overwriting(plan)) return failure;
  }
  const Collective collective = plans[0].collective;
  if (collective == Collective::kBarrier) return check_barrier(plans);
  if (auto failure = check_values(plans, Buffers::kOutOfPlace, scaling, wire)) return "out of place: " + *failure;
  if (!in_place_possible(collective)) return std::nullopt;
  if (auto failure = check_values(plans, Buffers::kInPlace, scaling, wire)) return "in place: " + *failure;
  return std::nullopt;
}

// Blocks of two full rounds; of any length up to that, the same in every run; and of such lengths that only the two
// ranks of a block know (all_to_all with counts of its own).
enum class Lengths : uint8_t { kEqual, kMixed, kCounted };

// Elements of one byte in slices of one byte. Two rounds: everything that ties a round to the next one then happens.
Load load_of(const Plan& plan, uint32_t slices, Lengths lengths) {
  Load load;
  load.slicing.slices_per_chunk = slices;
  load.counted = lengths == Lengths::kCounted;
  load.block_bytes.assign(lengths_of(plan), 2 * slices);
  for (size_t i = 0; i < load.block_bytes.size() && lengths != Lengths::kEqual; ++i) {
    load.block_bytes[i] = mix64(i * 64 + slices * 8) % (2 * slices + 1);
  }
  return load;
}

}  // namespace

Verdict verify_values(std::span<const Plan> plans, Scaling scaling, Wire wire) {
  return verdict_of(values_failure(plans, scaling, wire));
}

Verdict verify_progress(std::span<const Plan> plans, uint32_t slices, uint32_t depth) {
  for (const Lengths lengths : {Lengths::kEqual, Lengths::kMixed, Lengths::kCounted}) {
    if (lengths == Lengths::kCounted && plans[0].collective != Collective::kAllToAll) continue;
    Machine machine(plans, load_of(plans[0], slices, lengths), depth);
    if (!machine.run()) {
      return {false, "with " + std::to_string(slices) + " slices a chunk and depth " + std::to_string(depth) + ", " +
                         machine.stuck()};
    }
  }
  return {};
}

Verdict verify(std::span<const Plan> plans, Scaling scaling, uint32_t max_slices) {
  Verdict verdict = verify_values(plans, scaling);
  for (uint32_t slices = 1; verdict.ok && slices <= max_slices; ++slices) {
    verdict = verify_progress(plans, slices, slices * plans[0].chunks_in_flight + 1);
  }
  return verdict;
}

}  // namespace rondo
