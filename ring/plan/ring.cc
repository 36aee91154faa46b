#include <set>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"
#include "ring/plan/ring.h"

namespace rondo {
namespace {

// Scatter-reduce, then all-gather, N-1 steps each. Block c starts at rank c and collects a contribution a hop; the rank
// before c completes it and sends it once more round the ring. The step that completes a block also sends it: a rank
// sends 2(N-1) times, with no step between the phases. Only one rank folds each block, and the others get copies: all
// ranks end with the same bits whatever the operation.
void all_reduce(PlanBuilder& b, const Ring& ring) {
  const int n = ring.size();
  const int prev = ring.prev(), next = ring.next();
  b.send(ring.block(0), next);
  for (int k = 1; k <= n - 2; ++k) b.recv_reduce_send(ring.arriving(b, k), next);
  b.recv_reduce_copy_send(ring.arriving(b, n - 1), next);
  for (int k = 0; k <= n - 3; ++k) b.recv_copy_send(ring.block(-k), prev, next);
  b.recv_copy(ring.block(2), prev);
}

// Block c starts at the rank after c, so that it ends, complete, at rank c after N-1 hops. The partial folds only
// pass through: no scratch memory.
void reduce_scatter(PlanBuilder& b, const Ring& ring) {
  const int n = ring.size();
  b.send(ring.block(-1), ring.next());
  for (int k = 2; k <= n - 1; ++k) {
    const uint32_t c = ring.block(-k);
    b.recv_reduce_send(k == 2 ? b.from_input(ring.prev(), c) : b.from(ring.prev(), c), ring.next());
  }
  const uint32_t c = ring.block(0);
  b.recv_reduce_copy(n == 2 ? b.from_input(ring.prev(), c) : b.from(ring.prev(), c));
}

// Each rank's block goes round the ring in N-1 hops. A block is stored and sent on in one step, from the memory where
// it landed.
void all_gather(PlanBuilder& b, const Ring& ring) {
  const int n = ring.size();
  b.copy_send(ring.block(0), ring.next());
  for (int k = 1; k <= n - 2; ++k) b.recv_copy_send(ring.block(-k), ring.prev(), ring.next());
  b.recv_copy(ring.block(1), ring.prev());
}

// A chain from the root to the rank before it, N-1 hops; slices follow one another along it, so a long buffer takes
// little longer than one hop of it.
void broadcast(PlanBuilder& b, const Ring& ring, int hops) {
  if (hops == 0) {
    b.copy_send(0, ring.next());
  } else if (hops < ring.size() - 1) {
    b.recv_copy_send(0, ring.prev(), ring.next());
  } else {
    b.recv_copy(0, ring.prev());
  }
}

// The same chain the other way: it begins at the rank after the root and ends at the root.
void reduce(PlanBuilder& b, const Ring& ring, int hops) {
  const Ref arriving = hops == 2 || ring.size() == 2 ? b.from_input(ring.prev(), 0) : b.from(ring.prev(), 0);
  if (hops == 0) {
    b.recv_reduce_copy(arriving);
  } else if (hops == 1) {
    b.send(0, ring.next());
  } else {
    b.recv_reduce_send(arriving, ring.next());
  }
}

// A chain from rank 0 to the last one: each adds its contribution to what those before it have, and passes that on.
void scan(PlanBuilder& b) {
  const int me = b.rank(), last = b.world() - 1;
  if (me == 0) return b.copy_send(0, 1);
  const Ref arriving = me == 1 ? b.from_input(0, 0) : b.from(me - 1, 0);
  if (me == last) return b.step({arriving, b.own(0)}, {b.output(0)});
  b.step({arriving, b.own(0)}, {b.output(0), b.to(me + 1, 0)});
}

// The same; what has come waits in scratch memory until the own contribution, which may lie in the output, has been
// folded.
void exscan(PlanBuilder& b) {
  const int me = b.rank(), last = b.world() - 1;
  if (me == 0) return b.send(0, 1);
  if (me == last) return b.recv_copy(0, me - 1);
  const Ref kept = b.scratch(0, 0);
  Ref before = kept;
  if (me == 1) before.flags = b.from_input(0, 0).flags;  // the contribution of rank 0
  b.step({b.from(me - 1, 0)}, {kept});
  b.step({before, b.own(0)}, {b.to(me + 1, 0)});
  b.step({kept}, {b.output(0)});
}

// Every rank sends to the root itself: the root's port is busy all the time, and a way round the ring would only
// carry the bytes more often. Scatter is the same the other way.
void gather(PlanBuilder& b, const Ring& ring) {
  const uint32_t own = ring.block(0);
  if (b.rank() != b.root()) return b.send(own, b.root());
  b.copy(own, own);
  for (int k = 1; k < ring.size(); ++k) b.recv_copy(ring.block(-k), ring.rank_at(-k));
}

// The next rank's block goes first; the root's own needs no link, and comes last.
void scatter(PlanBuilder& b, const Ring& ring) {
  const uint32_t own = ring.block(0);
  if (b.rank() != b.root()) return b.recv_copy(own, b.root());
  for (int k = 1; k < ring.size(); ++k) b.send(ring.block(k), ring.rank_at(k));
  b.copy(own, own);
}

// Strided: at stride k every rank sends to the rank k after it and receives from the rank k before it.
void all_to_all(PlanBuilder& b, const Ring& ring) {
  for (int k = 1; k < ring.size(); ++k) {
    b.send(ring.block(k), ring.rank_at(k));
    b.recv_copy(ring.block(-k), ring.rank_at(-k));
  }
  b.copy(ring.block(0), ring.block(0));
}

// Dissemination (Hensgen, Finkel, Manber 1988): after the signal at distance 2^i a rank has heard, directly or not, of
// the 2^(i+1) - 1 ranks before it.
void barrier(PlanBuilder& b, const Ring& ring) {
  for (int distance = 1; distance < ring.size(); distance *= 2) {
    b.signal(ring.rank_at(distance));
    b.wait(ring.rank_at(-distance));
  }
}

// The most peers that a rank has, which sizes the memory of links (Plan::max_peers). In a barrier the ranks at
// distance 2^i on both sides may be the same rank.
uint32_t fan_of(Collective collective, int world) {
  switch (collective) {
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return static_cast<uint32_t>(world - 1);
    case Collective::kBarrier: {
      std::set<int> peers;
      for (int distance = 1; distance < world; distance *= 2) peers.insert({distance, world - distance});
      return static_cast<uint32_t>(peers.size());
    }
    default:
      return ring_max_peers(world);
  }
}

// Collectives whose ring passes the whole buffer along; the others have a block for each rank.
bool one_block(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kBarrier || collective_scans(c);
}

}  // namespace

Plan build_ring(const PlanRequest& request) {
  const int world = request.topology.world();
  const uint32_t blocks = one_block(request.collective) ? 1 : static_cast<uint32_t>(world);
  PlanBuilder b(request, blocks, fan_of(request.collective, world));
  const Ring ring(world, request.rank);
  switch (request.collective) {
    case Collective::kAllReduce:
      all_reduce(b, ring);
      break;
    case Collective::kReduceScatter:
      reduce_scatter(b, ring);
      break;
    case Collective::kAllGather:
      all_gather(b, ring);
      break;
    case Collective::kBroadcast:
      broadcast(b, ring, ring.hops_from(request.root));
      break;
    case Collective::kReduce:
      reduce(b, ring, ring.hops_from(request.root));
      break;
    case Collective::kGather:
      gather(b, ring);
      break;
    case Collective::kScatter:
      scatter(b, ring);
      break;
    case Collective::kAllToAll:
      all_to_all(b, ring);
      break;
    case Collective::kBarrier:
      barrier(b, ring);
      break;
    case Collective::kScan:
      scan(b);
      break;
    case Collective::kExscan:
      exscan(b);
      break;
  }
  return b.take();
}

}  // namespace rondo
