// Which algorithms give the same bits: proved by the symbolic values of their plans.
#include "ring/plan/fold_class.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ring/plan/values.h"
#include "tests/plan/plans.h"

namespace rondo {
namespace {

// How contributions are folded, without the block: "finish((0 1) 2)". Of two operands the smaller text comes first,
// since their order does not matter.
class FoldText {
 public:
  explicit FoldText(const ValueTrace& trace) : trace_(trace) {
    for (const ValueTrace::Executed& step : trace.steps) {
      const bool copies = step.operands.size() == 1 && step.operands.front() == step.value;
      if (!step.operands.empty() && !copies) folds_.emplace(step.value, step.operands);
    }
  }

  std::string of(Value value) const {
    const ValueTrace::Held& held = trace_.values[value];
    const auto fold = folds_.find(value);
    if (fold == folds_.end()) {
      REQUIRE(held.ranks.size() == 1);
      return std::to_string(held.ranks.front());
    }
    std::vector<std::string> operands;
    for (const Value operand : fold->second) operands.push_back(of(operand));
    if (operands.size() == 2) std::sort(operands.begin(), operands.end());
    std::string text = held.finished ? "finish(" : "(";
    for (const std::string& operand : operands) text += " " + operand;
    return text + " )";
  }

 private:
  const ValueTrace& trace_;
  std::map<Value, std::vector<Value>> folds_;
};

// The ways in which the results of such plans are folded: one for all blocks, if the order is that of the ranks.
std::set<std::string> results_of(Collective collective, Algorithm algorithm, const Topology& topology, int root) {
  PlanRequest request = request_of(collective, algorithm, topology);
  request.root = root;
  std::set<std::string> texts;
  const ValueTrace trace = trace_values(plans_of_all_ranks(request));
  const FoldText text(trace);
  for (const ValueTrace::Executed& step : trace.steps) {
    if (step.value == kNoValue) continue;
    const ValueTrace::Held& held = trace.values[step.value];
    const bool complete = held.finished && held.ranks.size() == static_cast<size_t>(topology.world());
    if (complete) texts.insert(text.of(step.value));
  }
  REQUIRE(!texts.empty());
  return texts;
}

// Whether the plans fold all contributions in the order of the ranks.
bool in_rank_order(const PlanRequest& request) {
  const ValueTrace trace = trace_values(plans_of_all_ranks(request));
  return std::ranges::all_of(trace.values, [](const ValueTrace::Held& held) {
    return !held.finished || std::is_sorted(held.ranks.begin(), held.ranks.end());
  });
}

}  // namespace

TEST_CASE("algorithms that are said to keep the order of the ranks do, for every root") {
  // Proves: an operation that is not commutative gives what it would give rank by rank.
  int kept = 0, ways = 0;
  for (int world = 2; world <= 64; world += world < 9 ? 1 : 11) {
    const Topology topology = one_island_of(world);
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce}) {
      for (int i = 1; i < kAlgorithms; ++i) {
        const auto algorithm = static_cast<Algorithm>(i);
        if (algorithm == Algorithm::kWindow || !plan_available(collective, algorithm, topology)) continue;
        for (int root = 0; root < (collective_has_root(collective) ? world : 1); ++root) {
          ++ways;
          if (!keeps_rank_order(collective, algorithm, root, world)) continue;
          ++kept;
          CAPTURE(world);
          CAPTURE(root);
          CAPTURE(collective_name(collective));
          CAPTURE(algorithm_name(algorithm));
          CHECK(in_rank_order(request_of(collective, algorithm, topology, root)));
        }
      }
    }
  }
  CHECK(kept > 200);
  CHECK(ways > kept);
  const Topology three = one_host(3);
  CHECK(!in_rank_order(request_of(Collective::kAllReduce, Algorithm::kRing, three)));
  CHECK(!keeps_rank_order(Collective::kAllReduce, Algorithm::kRing, -1, 3));
}

TEST_CASE("algorithms that are said to fold alike give the same bits") {
  // Proves: a tuner that chooses among them by times changes no result.
  int pairs = 0;
  for (const int world : {2, 3, 4, 5, 8, 13}) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce}) {
      for (const int cores : {0, 1}) {
        Topology topology = one_host(world);
        topology.island.assign(static_cast<size_t>(world), cores == 0 ? 0 : -1);
        topology.cores.assign(static_cast<size_t>(world), cores);
        const int root = collective_has_root(collective) ? world - 1 : -1;
        std::map<Algorithm, std::set<std::string>> results;
        for (int i = 0; i < kAlgorithms; ++i) {
          const auto algorithm = static_cast<Algorithm>(i);
          if (algorithm == Algorithm::kAuto || algorithm == Algorithm::kWindow) continue;
          if (!plan_available(collective, algorithm, topology)) continue;
          results[algorithm] = results_of(collective, algorithm, topology, root);
        }
        for (const auto& one : results) {
          for (const auto& other : results) {
            const Algorithm a = one.first, b = other.first;
            if (a == b || !fold_alike(collective, a, b, world)) continue;
            CAPTURE(world);
            CAPTURE(collective_name(collective));
            CAPTURE(algorithm_name(a));
            CAPTURE(algorithm_name(b));
            CHECK(one.second.size() == 1);
            CHECK(one.second == other.second);
            ++pairs;
          }
        }
      }
    }
  }
  CHECK(pairs > 50);
}

TEST_CASE("orders that differ are not said to be alike") {
  CHECK(!fold_alike(Collective::kAllReduce, Algorithm::kRing, Algorithm::kDirect, 3));
  CHECK(!fold_alike(Collective::kAllReduce, Algorithm::kRecursiveDoubling, Algorithm::kDirect, 4));
  CHECK(fold_alike(Collective::kAllReduce, Algorithm::kRing, Algorithm::kDirect, 2));
  CHECK(fold_alike(Collective::kAllGather, Algorithm::kRing, Algorithm::kStaged, 4));
  CHECK(fold_alike(Collective::kAllReduce, Algorithm::kPull, Algorithm::kOneShot, 4));
}

}  // namespace rondo
