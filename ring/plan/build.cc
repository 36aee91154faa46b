#include "ring/plan/build.h"

#include <algorithm>
#include <string>

#include "ring/base/types.h"
#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"
#include "rondo/error.h"

namespace rondo {
namespace {

constexpr int kMaxWorld = 65535;        // Ref::peer is 16 bits
constexpr int kMaxChunksInFlight = 64;  // Config::slices_per_chunk

// A request that no builder can serve is the caller's mistake: the message says the value and the range.
[[noreturn]] void refuse(const std::string& why) { throw Exception(ErrorCode::kInvalid, "no such plan: " + why); }

// Everything that the builders rely on. They check nothing again.
void check(const PlanRequest& request) {
  const int world = request.topology.world();
  if (world < 1 || world > kMaxWorld) refuse("a world of " + std::to_string(world) + " ranks, not 1 .. 65535");
  if (request.rank < 0 || request.rank >= world) {
    refuse("rank " + std::to_string(request.rank) + " in a world of " + std::to_string(world));
  }
  if (request.chunks_in_flight < 1 || request.chunks_in_flight > kMaxChunksInFlight) {
    refuse(std::to_string(request.chunks_in_flight) + " chunks in flight, not 1 .. 64");
  }
  const bool rooted = collective_has_root(request.collective);
  if (rooted ? request.root < 0 || request.root >= world : request.root != -1) {
    refuse("root " + std::to_string(request.root) + " of " + collective_name(request.collective) + " in a world of " +
           std::to_string(world));
  }
  if (!plan_available(request.collective, request.algorithm, request.topology)) {
    refuse(std::string(collective_name(request.collective)) + " has no algorithm " + algorithm_name(request.algorithm) +
           " for a world of " + std::to_string(world));
  }
  // A window is read as its owner's program left it: no rank writes its scaled contribution anywhere.
  const bool reads_raw = request.algorithm == Algorithm::kPull || request.algorithm == Algorithm::kRegistered;
  if (reads_raw && request.scale_at_source && collective_reduces(request.collective)) {
    refuse(std::string(algorithm_name(request.algorithm)) +
           " reads contributions where they lie, so their own ranks cannot scale them");
  }
}

// One rank: what it contributes is the result. exscan leaves the output as it is, as on rank 0 of any world.
Plan build_alone(const PlanRequest& request) {
  PlanBuilder b(request, 1, 0);
  if (request.collective == Collective::kBarrier || request.collective == Collective::kExscan) return b.take();
  b.step({b.own(0)}, {b.output(0)}, collective_reduces(request.collective) ? uint16_t{kFinish} : uint16_t{0});
  return b.take();
}

// What a tree can do: the whole buffer goes up, down, or up and down.
bool spreads_or_folds_one_block(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kBroadcast || c == Collective::kReduce;
}

// The most ranks on one host.
int largest_host(const Topology& topology) {
  std::vector<int> ranks(topology.host.size());
  for (const int host : topology.host) ++ranks[static_cast<size_t>(host)];
  return *std::max_element(ranks.begin(), ranks.end());
}

}  // namespace

// Pure in what all ranks know, so no rank can pick an algorithm that another one lacks. A builder has
// every collective that is not refused here.
bool plan_available(Collective collective, Algorithm algorithm, const Topology& topology) {
  if (static_cast<int>(collective) >= kCollectives) return false;
  switch (algorithm) {
    case Algorithm::kRing:
      return true;
    case Algorithm::kDirect:
      return topology.world() <= kDirectWorlds;
    case Algorithm::kTree:
    case Algorithm::kDoubleTree:
      return spreads_or_folds_one_block(collective);
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kHierarchical:
    case Algorithm::kStar:
      return collective == Collective::kAllReduce;
    case Algorithm::kHalvingDoubling:
      return collective == Collective::kAllReduce || collective_shares_blocks(collective);
    case Algorithm::kPat:
      return collective_shares_blocks(collective);
    case Algorithm::kWindow:
    case Algorithm::kStaged:
    case Algorithm::kPull:
    case Algorithm::kRegistered:
      return collective != Collective::kBarrier && !collective_scans(collective) && topology.one_island() &&
             topology.world() <= kDirectWorlds;
    case Algorithm::kOneShot:
      return topology.one_island() && topology.world() <= kDirectWorlds;
    case Algorithm::kAuto:
      return false;
  }
  return false;
}

bool carries_wire_format(Collective collective, Algorithm algorithm, const Topology& topology) {
  if (!plan_available(collective, algorithm, topology)) return false;
  switch (collective) {
    case Collective::kAllReduce:
      // A step sends to so many: what goes to more is encoded again.
      if (algorithm == Algorithm::kStar) return topology.world() <= kDirectWorlds;
      if (algorithm == Algorithm::kHierarchical) return largest_host(topology) <= kDirectWorlds;
      return algorithm == Algorithm::kRing || algorithm == Algorithm::kDirect || algorithm == Algorithm::kTree ||
             algorithm == Algorithm::kDoubleTree;
    case Collective::kReduceScatter:
      return algorithm == Algorithm::kRing || algorithm == Algorithm::kDirect ||
             algorithm == Algorithm::kHalvingDoubling || algorithm == Algorithm::kPat;
    case Collective::kAllGather:
      return algorithm == Algorithm::kRing || algorithm == Algorithm::kDirect;
    case Collective::kBroadcast:
      // Nothing is folded, and the root's bytes are passed on as they are.
      return !in_island(algorithm);
    default:
      return false;
  }
}

Plan build_plan(const PlanRequest& request) {
  check(request);
  if (request.topology.world() == 1) return build_alone(request);
  switch (request.algorithm) {
    case Algorithm::kRing:
      return build_ring(request);
    case Algorithm::kDirect:
      return build_direct(request);
    case Algorithm::kRecursiveDoubling:
      return build_doubling(request);
    case Algorithm::kTree:
      return build_tree(request);
    case Algorithm::kHierarchical:
      return build_hierarchical(request);
    case Algorithm::kStar:
      return build_star(request);
    case Algorithm::kHalvingDoubling:
      return build_halving_doubling(request);
    case Algorithm::kDoubleTree:
      return build_double_tree(request);
    case Algorithm::kPat:
      return build_pat(request);
    case Algorithm::kStaged:
    case Algorithm::kPull:
    case Algorithm::kRegistered:
      return build_window(request);
    case Algorithm::kOneShot:
      return build_one_shot(request);
    case Algorithm::kWindow:
    case Algorithm::kAuto:
      break;
  }
  refuse("the algorithm must be chosen first");
}

}  // namespace rondo
