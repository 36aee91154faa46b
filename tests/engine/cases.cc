#include "tests/engine/cases.h"

#include <fmt/format.h>

#include <numeric>

#include "ring/base/types.h"
#include "ring/plan/build.h"
#include "rondo/communicator.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

bool has_uneven(Collective c) {
  return c == Collective::kAllGather || c == Collective::kReduceScatter || c == Collective::kGather ||
         c == Collective::kScatter || c == Collective::kAllToAll;
}

// Blocks of 0 to 3 times the count; some ranks have none.
std::vector<uint64_t> uneven_counts(int world, uint64_t count) {
  std::vector<uint64_t> counts;
  for (uint64_t r = 0; r < static_cast<uint64_t>(world); ++r) {
    counts.push_back(r % 3 == 1 ? 0 : (count * (r % 4) + (count > 0 ? r : 0)));
  }
  return counts;
}

uint64_t block_count(Collective collective, uint64_t count, int world) {
  const auto ranks = static_cast<uint64_t>(world);
  return has_uneven(collective) && count > 10 * ranks ? count / ranks : count;
}

// One call in its four ways of lying in memory, and the uneven variants of it.
void add_ways(std::vector<CollectiveCase>& cases, CollectiveCase what) {
  for (const bool in_place : {false, true}) {
    for (const bool aligned : {true, false}) {
      what.in_place = in_place && what.collective != Collective::kAllToAll;
      what.misalign = aligned ? 0 : 1 + cases.size() % 15;
      what.seed = cases.size();
      what.dtype = static_cast<DType>(cases.size() % kDTypes);
      what.counts.clear();
      cases.push_back(what);
      if (!has_uneven(what.collective)) continue;
      what.counts = uneven_counts(what.world, what.count);
      cases.push_back(what);
    }
  }
}

}  // namespace

std::vector<CollectiveCase> all_shapes(const CaseList& list) {
  std::vector<CollectiveCase> cases;
  for (int c = 0; c < kCollectives; ++c) {
    CollectiveCase what;
    what.collective = static_cast<Collective>(c);
    what.world = list.world;
    for (const int root : list.roots) {
      if (root != list.roots[0] && !collective_has_root(what.collective)) break;
      what.root = root;
      for (const uint64_t count : list.counts) {
        what.count = what.collective == Collective::kBarrier ? 0 : block_count(what.collective, count, list.world);
        add_ways(cases, what);
        if (what.collective == Collective::kBarrier) break;
      }
    }
  }
  return cases;
}

std::vector<CollectiveCase> all_reductions(int world) {
  std::vector<CollectiveCase> cases;
  for (const Collective c : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce, Collective::kScan,
                             Collective::kExscan}) {
    for (int d = 0; d < kDTypes; ++d) {
      for (int o = 0; o < kOps; ++o) {
        CollectiveCase what;
        what.collective = c;
        what.world = world;
        what.dtype = static_cast<DType>(d);
        what.op = static_cast<Op>(o);
        if (!op_supports(what.op, what.dtype)) continue;
        if (collective_scans(c) && what.op == Op::kAverage) continue;
        what.root = static_cast<int>(cases.size()) % world;
        what.count = 301 + cases.size() % 3;
        what.seed = cases.size();
        what.in_place = cases.size() % 2 == 1;
        what.misalign = cases.size() % 5;
        cases.push_back(what);
      }
    }
  }
  return cases;
}

std::vector<uint64_t> usual_counts(int world, uint64_t large) {
  const auto ranks = static_cast<uint64_t>(world);
  return {0, 1, ranks - 1, ranks, ranks + 1, 1237, large};
}

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<Algorithm> available_algorithms(Collective collective, const Topology& topology) {
  std::vector<Algorithm> found;
  for (int a = 1; a < kAlgorithms; ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    if (plan_available(collective, algorithm, topology) && !in_island(algorithm)) found.push_back(algorithm);
  }
  return found;
}

void* RegisteredMemory::do_allocate(size_t bytes, size_t) { return group_.allocate(bytes); }
void RegisteredMemory::do_deallocate(void* data, size_t, size_t) { group_.deallocate(data); }

void run_case(Communicator& group, const CollectiveCase& what, Algorithm algorithm, std::pmr::memory_resource* memory) {
  const CollectiveRank rank(what, group.rank(), memory);
  Call call = rank.call();
  call.options.algorithm = algorithm;
  const auto label = [&] { return fmt::format("{} by {}", what.describe(), algorithm_name(algorithm)); };
  try {
    group.run(call);
  } catch (const Exception& failure) {
    throw Exception(failure.code(), fmt::format("{}: {}", label(), failure.what()));
  }
  const std::string wrong = rank.check();
  expect(wrong.empty(), fmt::format("by {}: {}", algorithm_name(algorithm), wrong));
  if (what.collective == Collective::kAllReduce) expect_same_everywhere(group, rank.output(), label());
}

void run_by_every_algorithm(Communicator& group, const std::vector<CollectiveCase>& cases) {
  for (const CollectiveCase& what : cases) {
    run_case(group, what);
    for (const Algorithm algorithm : available_algorithms(what.collective, group.topology())) {
      run_case(group, what, algorithm);
    }
  }
}

}  // namespace rondo::testing
