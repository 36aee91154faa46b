#include <algorithm>
#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/members.h"
#include "ring/plan/plan_builder.h"

// Recursive halving, then recursive doubling (Rabenseifner, "Optimization of collective reduction operations", 2004):
// scatter-reduce and all-gather by log2 N exchanges in pairs, which move as many bytes as the ring does in N-1 steps
// each. In exchange k a member gives the one that differs in bit k the partial folds that the other will go on with,
// and takes those that it goes on with itself; so what it has left is halved, and the nearest rank gets the most. The
// all-gather walks back. Each block is completed by one member and spread: one order of folding for all.
namespace rondo {
namespace {

// The members that m still answers for when exchange k is made, ascending: those that differ in higher bits only.
std::vector<int> kept(const Members& members, int m, int k) {
  const int step = 2 << k;
  std::vector<int> list;
  for (int other = m % step; other < members.count; other += step) list.push_back(other);
  return list;
}

// One member's way through the exchanges, on the blocks of one collective. all_reduce: blocks 0 .. members-1; the
// others: a block a rank.
class Member {
 public:
  Member(PlanBuilder& b, const Members& members, int chunks_in_flight)
      : b_(b),
        all_(members),
        in_flight_(static_cast<size_t>(std::min(chunks_in_flight, std::max(1, members.count / 2)))),
        me_(members.member_of(b.rank())) {
    b.set_chunks_in_flight(static_cast<int>(in_flight_));
  }

  // Each member completes its own blocks.
  void scatter_reduce() {
    if (has_companion()) take_in_companion();
    for (int k = 0; k < all_.exchanges; ++k) exchange(k, Phase::kScatterReduce);
  }
  void all_gather() {
    for (int k = all_.exchanges - 1; k >= 0; --k) exchange(k, Phase::kAllGather);
  }
  bool has_companion() const { return all_.paired(me_); }
  int companion() const { return b_.rank() + 1; }
  // In the order in which all_gather() stores the blocks of others.
  template <typename Visit>
  void each_gathered(Visit visit) const {
    for (int k = all_.exchanges - 1; k >= 0; --k) {
      for (uint32_t c : blocks(kept(all_, partner(k), k))) visit(c);
    }
  }

 private:
  enum class Phase { kScatterReduce, kAllGather };

  int partner(int k) const { return me_ ^ (1 << k); }
  // Whether blocks are numbered by rank, a pair of ranks having two, or by member.
  bool by_rank() const { return b_.collective() != Collective::kAllReduce; }
  // The blocks of these members: one each in an all_reduce; otherwise one for each rank, so two for a pair.
  std::vector<uint32_t> blocks(const std::vector<int>& members) const {
    std::vector<uint32_t> list;
    for (int m : members) {
      const int first = by_rank() ? all_.rank_of(m) : m;
      list.push_back(static_cast<uint32_t>(first));
      if (by_rank() && all_.paired(m)) list.push_back(static_cast<uint32_t>(first + 1));
    }
    return list;
  }

  // Blocks go as many at a time as a link holds; both ends divide the lists alike.
  void exchange(int k, Phase phase) {
    const int other = partner(k);
    const bool reduces = phase == Phase::kScatterReduce;
    const std::vector<uint32_t> mine = blocks(kept(all_, me_, k)), theirs = blocks(kept(all_, other, k));
    const std::vector<uint32_t>&give = reduces ? theirs : mine, &take = reduces ? mine : theirs;
    for (size_t i = 0; i < std::max(give.size(), take.size()); i += in_flight_) {
      for (size_t j = i; j < std::min(i + in_flight_, give.size()); ++j) {
        b_.step({reduces ? outgoing(give[j], k) : b_.output(give[j])}, {b_.to(all_.rank_of(other), give[j])});
      }
      for (size_t j = i; j < std::min(i + in_flight_, take.size()); ++j) {
        if (reduces) {
          fold(take[j], k, other);
        } else {
          store(take[j], other);
        }
      }
    }
  }

  // In its first exchange a member without a companion gives its contribution as it is; all later values are folds.
  bool raw(int k) const { return k == 0 && !has_companion(); }
  Ref outgoing(uint32_t c, int k) { return raw(k) ? b_.input(c) : partial(c); }
  // Partial folds: in the output where all of it is promised to this rank.
  Ref partial(uint32_t c) { return by_rank() ? b_.scratch(0, c) : b_.output(c); }

  // The companion's whole contribution comes first, so that what its member exchanges stands for both.
  void take_in_companion() {
    std::vector<int> all(static_cast<size_t>(all_.count));
    for (int m = 0; m < all_.count; ++m) all[static_cast<size_t>(m)] = m;
    for (uint32_t c : blocks(all)) b_.step({b_.own(c), b_.from_input(companion(), c)}, {partial(c)});
  }

  // The lower member's value is the first operand on both sides, which keeps rank order. In the last exchange a block
  // is complete: it goes to the output, to the companion, or to both.
  void fold(uint32_t c, int k, int other) {
    const int peer = all_.rank_of(other);
    const bool their_raw = k == 0 && !all_.paired(other);
    const Ref theirs = their_raw ? b_.from_input(peer, c) : b_.from(peer, c);
    const Ref mine = raw(k) ? b_.own(c) : partial(c);
    const bool first = me_ < other;
    const Ref sources[2] = {first ? mine : theirs, first ? theirs : mine};
    if (k + 1 < all_.exchanges) {
      const Ref target = partial(c);
      return b_.step(sources, {&target, 1});
    }
    // A reduce_scatter's block of the companion is nothing that this rank keeps.
    const bool companions = by_rank() && c != static_cast<uint32_t>(b_.rank());
    std::vector<Ref> targets;
    if (!companions) targets.push_back(b_.output(c));
    if (companions || (has_companion() && !by_rank())) targets.push_back(b_.to(companion(), c));
    b_.step(sources, targets, kFinish);
  }

  // What comes is passed on to the companion by the same step.
  void store(uint32_t c, int other) {
    const int peer = all_.rank_of(other);
    if (has_companion()) return b_.recv_copy_send(c, peer, companion());
    b_.recv_copy(c, peer);
  }

  PlanBuilder& b_;
  const Members& all_;
  size_t in_flight_;  // blocks
  int me_;
};

// Halving, then doubling: 2 log2 N exchanges. A companion only talks to its even rank, and receives the blocks in the
// order in which that one completes and stores them, since links are first in, first out.
void all_reduce(PlanBuilder& b, const Members& members, Member member) {
  if (members.companion(b.rank())) {
    const int even = b.rank() - 1;
    for (int m = 0; m < members.count; ++m) b.send(static_cast<uint32_t>(m), even);
    b.recv_copy(static_cast<uint32_t>(members.member_of(even)), even);
    return member.each_gathered([&](uint32_t c) { b.recv_copy(c, even); });
  }
  member.scatter_reduce();
  member.all_gather();
}

// The first half of the all_reduce, with a block a rank. Partial folds go to scratch memory, since only one block of
// the output is this rank's.
void reduce_scatter(PlanBuilder& b, const Members& members, Member member) {
  if (members.companion(b.rank())) {
    for (int c = 0; c < b.world(); ++c) b.send(static_cast<uint32_t>(c), b.rank() - 1);
    return b.recv_copy(static_cast<uint32_t>(b.rank()), b.rank() - 1);
  }
  member.scatter_reduce();
}

// The second half: each exchange doubles the blocks that a member has. Members and companions first swap their own
// blocks.
void all_gather(PlanBuilder& b, const Members& members, Member member) {
  const uint32_t own = static_cast<uint32_t>(b.rank());
  if (members.companion(b.rank())) {
    const int even = b.rank() - 1;
    b.copy_send(own, even);
    b.recv_copy(static_cast<uint32_t>(even), even);
    return member.each_gathered([&](uint32_t c) { b.recv_copy(c, even); });
  }
  if (member.has_companion()) {
    b.copy_send(own, member.companion());
    b.recv_copy(static_cast<uint32_t>(member.companion()), member.companion());
  } else {
    b.copy(own, own);
  }
  member.all_gather();
}

}  // namespace

Plan build_halving_doubling(const PlanRequest& request) {
  const int world = request.topology.world();
  const Members members(world);
  const auto page = request.collective == Collective::kReduceScatter ? reduce_scatter
                    : request.collective == Collective::kAllGather   ? all_gather
                                                                     : all_reduce;
  const int blocks = request.collective == Collective::kAllReduce ? members.count : world;
  PlanBuilder b(request, static_cast<uint32_t>(blocks), members.max_peers());
  page(b, members, Member(b, members, request.chunks_in_flight));  // a companion: its even rank's way
  return b.take();
}

}  // namespace rondo
