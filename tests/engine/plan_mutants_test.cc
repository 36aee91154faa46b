// Random mutants of sound plans. What the verifier accepts must run right: real executors, simulated links, or boards
// in one process. `plan_mutants_test --seeds=1000000 --first-seed=1` is the long run.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "ring/base/types.h"
#include "ring/plan/build.h"
#include "ring/plan/describe.h"
#include "ring/plan/verify.h"
#include "tests/engine/arguments.h"
#include "tests/engine/cluster.h"
#include "tests/engine/window_cluster.h"
#include "tests/support/collective_check.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

using Plans = std::vector<Plan>;

enum class Kind { kLinks, kWindows, kOneShot };

// --- what is mutated

Algorithm random_algorithm(Random& random, Kind kind, Collective collective, const Topology& topology) {
  const auto fits = [&](Algorithm algorithm) {
    const bool window =
        algorithm == Algorithm::kStaged || algorithm == Algorithm::kPull || algorithm == Algorithm::kRegistered;
    const bool one_shot = algorithm == Algorithm::kOneShot;
    return algorithm != Algorithm::kWindow && window == (kind == Kind::kWindows) &&
           one_shot == (kind == Kind::kOneShot) && plan_available(collective, algorithm, topology);
  };
  std::vector<Algorithm> list;
  for (int a = 1; a < kAlgorithms; ++a) {
    if (fits(static_cast<Algorithm>(a))) list.push_back(static_cast<Algorithm>(a));
  }
  return list.empty() ? Algorithm::kAuto : list[random.below(list.size())];
}

PlanRequest random_request(Random& random, Kind kind) {
  while (true) {
    PlanRequest request;
    const int world = static_cast<int>(random.between(2, 5));
    request.collective = static_cast<Collective>(random.below(kCollectives));
    for (int r = 0; r < world; ++r) request.topology.host.push_back(kind == Kind::kLinks ? r * 2 / world : 0);
    if (kind != Kind::kLinks) request.topology.island = request.topology.host;
    request.algorithm = random_algorithm(random, kind, request.collective, request.topology);
    if (request.algorithm == Algorithm::kAuto) continue;
    const int root = static_cast<int>(random.below(static_cast<uint64_t>(world)));
    request.root = collective_has_root(request.collective) ? root : -1;
    request.chunks_in_flight = static_cast<int>(random.between(1, 4));
    const bool raw = request.algorithm == Algorithm::kPull || request.algorithm == Algorithm::kRegistered;
    request.scale_at_source = collective_reduces(request.collective) && !raw && random.chance(20);
    return request;
  }
}

Plans plans_of(PlanRequest request) {
  Plans plans;
  for (request.rank = 0; request.rank < request.topology.world(); ++request.rank) plans.push_back(build_plan(request));
  return plans;
}

// --- how

template <typename T>
void toggle(T& flags, uint64_t bit) {
  flags = static_cast<T>(flags ^ bit);
}

void mutate_ref(Random& random, const Plan& plan, Ref& ref) {
  switch (random.below(5)) {
    case 0:
      ref.peer = static_cast<uint16_t>(random.below(static_cast<uint64_t>(plan.world)));
      break;
    case 1:
      ref.space = static_cast<Space>(random.below(5));
      break;
    case 2:
      toggle(ref.flags, uint64_t{1} << random.below(4));
      break;
    default:
      ref.block = static_cast<uint32_t>(random.below(uint64_t{plan.blocks} * (1 + plan.scratch_slots)));
      break;
  }
}

// Index of the step in the plan. Steps are compared and swapped with their refs, which stay where they are.
void mutate_step(Random& random, Plan& plan, uint32_t s) {
  Step& step = plan.steps[s];
  Step& other = plan.steps[random.below(plan.steps.size())];
  const uint32_t refs = uint32_t{step.sources} + step.targets;
  switch (random.below(9)) {
    case 0:
    case 1:
      step.after = s > 0 && random.chance(85) ? static_cast<uint32_t>(random.below(s)) : kNoStep;
      break;
    case 2:
      toggle(step.flags, uint64_t{1} << random.below(2));
      break;
    case 3:
      step.barrier = static_cast<uint16_t>(random.below(5));
      break;
    case 4:
      std::swap(step, other);
      break;
    case 5:  // the work, and not what it waits for
      std::swap(step, other);
      std::swap(step.after, other.after);
      break;
    case 6:
      std::swap(plan.refs[step.first + random.below(refs)], plan.refs[step.first + random.below(refs)]);
      break;
    default:
      mutate_ref(random, plan, plan.refs[step.first + random.below(refs)]);
      break;
  }
}

// The same change on one rank, or on all.
void mutate(uint64_t seed, Plans& plans) {
  Random random(seed);
  const bool all = random.chance(25);
  const size_t victim = random.below(plans.size());
  const uint64_t change = random.next();
  for (size_t r = 0; r < plans.size(); ++r) {
    if (!all && r != victim) continue;
    Random same(change);
    Plan& plan = plans[r];
    if (plan.steps.empty()) continue;
    const auto s = static_cast<uint32_t>(same.below(plan.steps.size()));
    if (same.chance(3)) {
      plan.steps.pop_back();
    } else {
      mutate_step(same, plan, s);
    }
  }
}

// --- how what is accepted is run

CollectiveCase case_of(Random& random, const PlanRequest& request, uint64_t count) {
  CollectiveCase what;
  what.collective = request.collective;
  what.world = request.topology.world();
  what.root = request.root < 0 ? 0 : request.root;
  what.dtype = random.chance(50) ? DType::kFloat32 : DType::kInt64;
  const bool may_average = what.dtype == DType::kFloat32 && !collective_scans(what.collective);
  what.op = request.scale_at_source ? Op::kPremulSum : may_average && random.chance(50) ? Op::kAverage : Op::kSum;
  if (what.op == Op::kPremulSum) what.dtype = DType::kFloat32;
  what.count = count;
  what.in_place = random.chance(50);
  what.seed = random.below(1000);
  return what;
}

// "" if every run ends with the right result.
std::string run_accepted(uint64_t seed, Kind kind, const PlanRequest& request, const Plans& plans) {
  Random random(seed);
  const auto world = static_cast<uint64_t>(request.topology.world());
  ClusterShape shape;
  shape.world = request.topology.world();
  shape.config.slice_bytes = 4096;
  shape.config.slices_per_chunk =
      static_cast<uint32_t>(request.chunks_in_flight) * (1 + static_cast<uint32_t>(random.below(2)));
  Cluster links(shape, seed);
  WindowCluster windows(shape.world, seed);
  uint64_t sequence = 0;
  for (const uint64_t count : {uint64_t{1}, world + 1, uint64_t{37}, 200 + random.below(600), uint64_t{0}}) {
    const CollectiveCase what = case_of(random, request, count);
    ++sequence;
    const std::string trouble =
        kind == Kind::kLinks ? links.run(what, plans, sequence) : windows.run(what, plans, sequence);
    if (!trouble.empty()) return fmt::format("{} ({})", trouble, what.describe());
  }
  return "";
}

std::string differences(const Plans& before, const Plans& after) {
  std::string text;
  for (size_t r = 0; r < before.size(); ++r) {
    if (before[r] == after[r]) continue;
    text += "\nbefore: " + describe(before[r]) + "after:  " + describe(after[r]);
  }
  return text;
}

struct Tally {
  int mutants = 0, accepted = 0;
};

Tally run_mutants(Kind kind, uint64_t share) {
  Tally tally;
  const auto [first, seeds] = seed_range(10'000);
  for (uint64_t seed = first; seed < first + seeds / share; ++seed) {
    Random random(seed * 4 + static_cast<uint64_t>(kind));
    const PlanRequest request = random_request(random, kind);
    const Plans sound = plans_of(request);
    Plans plans = sound;
    for (uint64_t changes = random.chance(80) ? 1 : 2; changes > 0; --changes) mutate(random.next(), plans);
    if (plans == sound) continue;
    ++tally.mutants;
    const Scaling scaling = request.scale_at_source ? Scaling::kAtSource : Scaling::kAtFold;
    INFO("seed " << seed << ", kind " << static_cast<int>(kind) << differences(sound, plans));
    if (!verify(plans, scaling, 2).ok) continue;
    ++tally.accepted;
    const std::string trouble = run_accepted(random.next(), kind, request, plans);
    REQUIRE_EQ(trouble, "");
  }
  MESSAGE("seeds " << first << " .. " << first + seeds / share - 1 << ": " << tally.accepted << " of " << tally.mutants
                   << " mutants accepted");
  return tally;
}

}  // namespace

TEST_CASE("what the verifier accepts runs right over links") { CHECK_GT(run_mutants(Kind::kLinks, 1).accepted, 0); }

TEST_CASE("what the verifier accepts runs right over windows") { CHECK_GT(run_mutants(Kind::kWindows, 2).accepted, 0); }

TEST_CASE("what the verifier accepts runs right in one shot") { CHECK_GT(run_mutants(Kind::kOneShot, 4).accepted, 0); }

}  // namespace rondo::testing
