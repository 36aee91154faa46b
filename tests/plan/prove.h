#pragma once

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>
#include "ring/plan/structure.h"
#include "ring/plan/verify.h"
#include "tests/plan/plans.h"

namespace rondo {

// Worlds up to this one are proven. Under a sanitizer, which slows a proof twenty times and is there for the
// prover's own code, the worlds past the first powers of two show nothing new.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kLargestWorld = 20;
#else
inline constexpr int kLargestWorld = 64;
#endif

// The time of a proof grows with the world's cube and more. Beyond 32 some worlds, among them the next to powers of
// two, stand for the others; RONDO_WHOLE (suite faults-long) has every one.
inline bool is_proven(int world) {
  return world <= 33 || world == 48 || world >= 63 || std::getenv("RONDO_WHOLE") != nullptr;
}

inline bool is_signal(const Plan& plan, const Step& step) { return length_of(plan, step) == kSignalLength; }

inline void check_verdict(const PlanRequest& request, const Verdict& verdict) {
  CHECK(verdict.ok);
  if (!verdict.ok) FAIL_CHECK(name_of(request) << ": " << verdict.failure);
}

// Who scales does not touch progress.
enum class Scalings : uint8_t { kAtFold, kBoth };
inline void prove(PlanRequest request, Scalings scalings = Scalings::kBoth) {
  check_verdict(request, verify(plans_of_all_ranks(request)));
  if (!collective_reduces(request.collective) || scalings == Scalings::kAtFold) return;
  request.scale_at_source = true;
  check_verdict(request, verify_values(plans_of_all_ranks(request), Scaling::kAtSource));
}

// Plans of all ranks with other names: rank r is called (r + by) % world, and its block, where each rank has one, too.
inline std::vector<Plan> renamed(const std::vector<Plan>& plans, int by) {
  const auto world = static_cast<uint32_t>(plans.size());
  const auto name = [&](auto rank) { return static_cast<decltype(rank)>((rank + by) % static_cast<int>(world)); };
  std::vector<Plan> named(plans.size());
  for (const Plan& plan : plans) {
    Plan& other = named[static_cast<size_t>(name(plan.rank))] = plan;
    other.rank = name(plan.rank);
    other.root = name(plan.root);
    for (int& peer : other.peers) peer = name(peer);
    std::ranges::sort(other.peers);
    const bool own_blocks = plan.collective == Collective::kGather || plan.collective == Collective::kScatter;
    for (Ref& ref : other.refs) {
      if (is_remote(ref)) ref.peer = name(ref.peer);
      if (!own_blocks || ref.space == Space::kMailbox) continue;
      const uint32_t block = ref.block % plan.blocks;
      ref.block += (block + static_cast<uint32_t>(by)) % plan.blocks - block;
    }
  }
  return named;
}

// Everything that prove() looks at.
inline std::vector<std::vector<Plan>> plans_to_prove(PlanRequest request, Scalings scalings) {
  std::vector<std::vector<Plan>> all{plans_of_all_ranks(request)};
  if (collective_reduces(request.collective) && scalings == Scalings::kBoth) {
    request.scale_at_source = true;
    all.push_back(plans_of_all_ranks(request));
  }
  return all;
}

// Proves a call with each of the roots, ascending from 0. What differs from the plans of root 0 in the names of ranks
// only is proven by these: no rule of the verifier asks for a number. All others are proven themselves, and in any case
// the last one.
template <typename Roots>
void prove_roots(PlanRequest request, const Roots& roots, Scalings scalings = Scalings::kBoth) {
  request.root = 0;
  const std::vector<std::vector<Plan>> of_zero = plans_to_prove(request, scalings);
  for (const int root : roots) {
    request.root = root;
    const std::vector<std::vector<Plan>> plans = plans_to_prove(request, scalings);
    const auto same = [&](const std::vector<Plan>& zero, const std::vector<Plan>& own) {
      return renamed(zero, root) == own;
    };
    const bool by_name = root != 0 && root != *std::rbegin(roots) && std::ranges::equal(of_zero, plans, same);
    if (!by_name) prove(request, scalings);
  }
}

// Strided steps are direct exchanges already: both names build one plan, which needs one proof.
inline bool direct_is_the_ring(Collective c) {
  return c == Collective::kGather || c == Collective::kScatter || c == Collective::kAllToAll;
}

inline void check_same_as_ring(PlanRequest request) {
  std::vector<Plan> direct = plans_of_all_ranks(request);
  request.algorithm = Algorithm::kRing;
  for (Plan& plan : direct) plan.algorithm = Algorithm::kRing;
  CHECK(direct == plans_of_all_ranks(request));
}

// How many chunks a link may hold: one, and what the default settings allow.
inline std::vector<int> chunks_in_flight_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kHalvingDoubling:
    case Algorithm::kPat:
      return {1, 4};
    case Algorithm::kDoubleTree:
      return {1, 2};
    default:
      return {1};
  }
}

// Every algorithm that the collective has, every root, the proven worlds up to kLargestWorld, on one host.
inline void prove_all(Collective collective) {
  for (int world = 1; world <= kLargestWorld; ++world) {
    if (!is_proven(world)) continue;
    for (int a = 1; a < kAlgorithms; ++a) {
      const Algorithm algorithm = static_cast<Algorithm>(a);
      if (!plan_available(collective, algorithm, one_host(world))) continue;
      if (algorithm == Algorithm::kHierarchical) continue;  // verify_hierarchical_test
      std::vector<int> roots(collective_has_root(collective) ? static_cast<size_t>(world) : 1);
      std::iota(roots.begin(), roots.end(), 0);
      if (algorithm == Algorithm::kDirect && direct_is_the_ring(collective)) {
        for (const int root : roots) check_same_as_ring(request_of(collective, algorithm, one_host(world), root));
        continue;
      }
      PlanRequest request = request_of(collective, algorithm, one_host(world));
      for (int chunks_in_flight : chunks_in_flight_of(algorithm)) {
        request.chunks_in_flight = chunks_in_flight;
        if (collective_has_root(collective)) {
          prove_roots(request, roots);
        } else {
          prove(request);
        }
      }
    }
  }
}

}  // namespace rondo
