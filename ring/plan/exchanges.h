#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ring/plan/plan_builder.h"

namespace rondo {

// Scatter-reduce and all-gather by exchanges in pairs, between a power of two of members. In exchange k a member gives
// its partner the partial folds that the partner will go on with and takes those that it goes on with itself, so that
// what it has left is halved; the all-gather walks back. Each block is completed by one member and spread, which is
// one order of folding for all, whatever the partners.
//
// Where there are more ranks than members, the first 2 * extra ranks form pairs: the odd one, a companion, takes part
// through the even one before it.
class Exchanges {
 public:
  // partner(member, k): with whom a member makes exchange k; partner(partner(m, k), k) = m.
  Exchanges(int world, std::function<int(int, int)> partner);

  int members() const { return members_; }
  int count() const { return count_; }                                           // of exchanges: log2(members)
  uint32_t fan() const { return static_cast<uint32_t>(count_ + (extra_ > 0)); }  // where partners are all different

  // One lane of the collective for this rank. all_reduce: blocks 0 .. members-1; the others: a block a rank.
  void all_reduce(PlanBuilder& b, int ahead) const;
  void reduce_scatter(PlanBuilder& b, int ahead) const;
  void all_gather(PlanBuilder& b, int ahead) const;

 private:
  friend class ExchangingMember;
  bool companion(int rank) const { return rank < 2 * extra_ && rank % 2 == 1; }
  bool paired(int member) const { return member < extra_; }
  int rank_of(int member) const { return paired(member) ? 2 * member : member + extra_; }
  int member_of(int rank) const { return rank < 2 * extra_ ? rank / 2 : rank - extra_; }
  // The members that m still answers for when exchange k is made, ascending: 2^(count - 1 - k) of them, m included.
  std::vector<int> kept(int m, int k) const;

  std::function<int(int, int)> partner_;
  int members_ = 1, count_ = 0, extra_ = 0;
};

}  // namespace rondo
