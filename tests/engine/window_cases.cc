#include "tests/engine/window_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ring/base/types.h"
#include "rondo/communicator.h"
#include "tests/engine/cases.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr Algorithm kInIsland[] = {Algorithm::kWindow, Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered,
                                   Algorithm::kOneShot};

// 256 KiB and more of every type.
constexpr uint64_t kLargeCount = 300'007;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// What no plan inside an island takes, or none that reads contributions where they lie.
bool possible(const CollectiveCase& what, Algorithm algorithm) {
  if (!what.counts.empty()) return false;
  if (what.collective == Collective::kBarrier || collective_scans(what.collective)) {
    return algorithm == Algorithm::kOneShot;
  }
  const bool raw = algorithm == Algorithm::kPull || algorithm == Algorithm::kRegistered;
  return !(raw && what.op == Op::kPremulSum && collective_reduces(what.collective));
}

void run_cases(Communicator& group, const std::vector<CollectiveCase>& cases) {
  RegisteredMemory registered(group);
  for (const CollectiveCase& what : cases) {
    for (const Algorithm algorithm : kInIsland) {
      if (!possible(what, algorithm)) continue;
      const bool needs = algorithm == Algorithm::kRegistered;
      run_case(group, what, algorithm, needs ? &registered : std::pmr::get_default_resource());
    }
  }
}

}  // namespace

void run_over_windows(Communicator& group, const std::vector<uint64_t>& counts) {
  const int world = group.size();
  run_cases(group, all_shapes({world, counts, {0, world - 1}}));
  run_cases(group, all_reductions(world));
}

void run_mixed_registration(Communicator& group) {
  RegisteredMemory registered(group);
  const int world = group.size();
  const auto cases = all_shapes({world, {1237}, {world - 1}});
  for (int subset = 0; subset < 1 << std::min(world, 4); ++subset) {
    const bool mine = group.rank() < 4 && (subset >> group.rank() & 1) != 0;
    for (const CollectiveCase& what : cases) {
      for (const Algorithm algorithm : {Algorithm::kWindow, Algorithm::kPull}) {
        if (!possible(what, algorithm)) continue;
        run_case(group, what, algorithm, mine ? &registered : std::pmr::get_default_resource());
      }
    }
  }
}

void run_large_in_turns(Communicator& group) {
  RegisteredMemory registered(group);
  const int world = group.size();
  for (CollectiveCase what : all_shapes({world, {kLargeCount}, {world - 1}})) {
    // A sanitizer is slow at elements: few of them, wide ones, and even counts, since uneven ones go over links always.
    if (kSanitized && (what.collective == Collective::kBarrier || !what.counts.empty())) continue;
    if (kSanitized) {
      what.dtype = DType::kFloat64;
      what.count = what.count / sizeof(double) + 1;
    }
    for (const bool mine : {true, true, false, false, group.rank() % 2 == 0, true}) {
      run_case(group, what, Algorithm::kAuto, mine ? &registered : std::pmr::get_default_resource());
    }
  }
}

void run_refusals(Communicator& group) {
  std::vector<float> plain(100, 1);
  auto* memory = static_cast<float*>(group.allocate(100 * sizeof(float)));
  std::fill_n(memory, 100, 1.0f);
  Call call;
  call.input = call.output = group.rank() == 0 ? memory : plain.data();
  call.count = 100;
  call.options.algorithm = Algorithm::kRegistered;
  const auto run = [&] { group.run(call); };
  expect_error(run, ErrorCode::kInvalid, "the buffers of rank 1 are not in memory from Communicator::allocate()");
  call.op = Op::kPremulSum;
  expect_error(run, ErrorCode::kInvalid, "no rank can scale its own");
  call.op = Op::kSum;
  call.options.algorithm = Algorithm::kAuto;
  group.run(call);  // the refusals have broken nothing
  expect((group.rank() == 0 ? memory[99] : plain[99]) == static_cast<float>(group.size()), "the sum after refusals");

  int other = 0;
  expect_error([&] { group.deallocate(&other); }, ErrorCode::kInvalid);
  group.deallocate(memory);
  group.barrier();
}

}  // namespace rondo::testing
