#include "ring/plan/exchanges.h"

#include <algorithm>
#include <utility>

namespace rondo {

Exchanges::Exchanges(int world, std::function<int(int, int)> partner) : partner_(std::move(partner)) {
  while (members_ * 2 <= world) {
    members_ *= 2;
    ++count_;
  }
  extra_ = world - members_;
}

std::vector<int> Exchanges::kept(int m, int k) const {
  std::vector<int> list(1, m);
  for (int j = count_ - 1; j > k; --j) {  // those of exchange j, and their partners'
    const size_t size = list.size();
    for (size_t i = 0; i < size; ++i) list.push_back(partner_(list[i], j));
  }
  std::sort(list.begin(), list.end());
  return list;
}

// One member's way through the exchanges, on the blocks of one collective.
class ExchangingMember {
 public:
  ExchangingMember(PlanBuilder& b, const Exchanges& e, int ahead)
      : b_(b), e_(e), ahead_(static_cast<size_t>(ahead)), me_(e.member_of(b.rank())) {
    b.set_ahead(std::min(ahead, std::max(1, e.members_ / 2)));
    ahead_ = std::min<size_t>(ahead_, static_cast<size_t>(std::max(1, e.members_ / 2)));
  }

  // Each member completes its own blocks.
  void scatter_reduce() {
    if (has_companion()) take_in_companion();
    for (int k = 0; k < e_.count_; ++k) exchange(k, Phase::kScatterReduce);
  }
  void all_gather() {
    for (int k = e_.count_ - 1; k >= 0; --k) exchange(k, Phase::kAllGather);
  }
  bool has_companion() const { return e_.paired(me_); }
  int companion() const { return b_.rank() + 1; }
  // In the order in which all_gather() stores the blocks of others.
  template <typename Visit>
  void each_gathered(Visit visit) const {
    for (int k = e_.count_ - 1; k >= 0; --k) {
      for (uint32_t c : blocks(e_.kept(e_.partner_(me_, k), k))) visit(c);
    }
  }
  bool by_rank() const { return b_.collective() != Collective::kAllReduce; }
  std::vector<uint32_t> blocks(const std::vector<int>& members) const {
    std::vector<uint32_t> list;
    for (int m : members) {
      const int first = by_rank() ? e_.rank_of(m) : m;
      list.push_back(static_cast<uint32_t>(first));
      if (by_rank() && e_.paired(m)) list.push_back(static_cast<uint32_t>(first + 1));
    }
    return list;
  }

 private:
  enum class Phase { kScatterReduce, kAllGather };

  // As many blocks at a time as a link holds; both ends divide the lists alike.
  void exchange(int k, Phase phase) {
    const int other = e_.partner_(me_, k);
    const bool reduces = phase == Phase::kScatterReduce;
    const std::vector<uint32_t> mine = blocks(e_.kept(me_, k)), theirs = blocks(e_.kept(other, k));
    const std::vector<uint32_t>&give = reduces ? theirs : mine, &take = reduces ? mine : theirs;
    for (size_t i = 0; i < std::max(give.size(), take.size()); i += ahead_) {
      for (size_t j = i; j < std::min(i + ahead_, give.size()); ++j) {
        b_.step({reduces ? outgoing(give[j], k) : b_.output(give[j])}, {b_.to(e_.rank_of(other), give[j])});
      }
      for (size_t j = i; j < std::min(i + ahead_, take.size()); ++j) {
        if (reduces) {
          fold(take[j], k, other);
        } else {
          store(take[j], other);
        }
      }
    }
  }

  bool raw(int k) const { return k == 0 && !has_companion(); }
  Ref outgoing(uint32_t c, int k) { return raw(k) ? b_.input(c) : partial(c); }
  // Partial folds: in the output where all of it is promised to this rank.
  Ref partial(uint32_t c) { return by_rank() ? b_.scratch(0, c) : b_.output(c); }

  void take_in_companion() {
    std::vector<int> all(static_cast<size_t>(e_.members_));
    for (int m = 0; m < e_.members_; ++m) all[static_cast<size_t>(m)] = m;
    for (uint32_t c : blocks(all)) b_.step({b_.own(c), b_.from_input(companion(), c)}, {partial(c)});
  }

  void fold(uint32_t c, int k, int other) {
    const int peer = e_.rank_of(other);
    const bool their_raw = k == 0 && !e_.paired(other);
    const Ref theirs = their_raw ? b_.from_input(peer, c) : b_.from(peer, c);
    const Ref mine = raw(k) ? b_.own(c) : partial(c);
    const bool first = me_ < other;
    const Ref sources[2] = {first ? mine : theirs, first ? theirs : mine};
    if (k + 1 < e_.count_) {
      const Ref target = partial(c);
      return b_.step(sources, {&target, 1});
    }
    const bool companions = by_rank() && c != static_cast<uint32_t>(b_.rank());
    std::vector<Ref> targets;
    if (!companions) targets.push_back(b_.output(c));
    if (companions || (has_companion() && !by_rank())) targets.push_back(b_.to(companion(), c));
    b_.step(sources, targets, kFinish);
  }

  void store(uint32_t c, int other) {
    const int peer = e_.rank_of(other);
    if (has_companion()) return b_.recv_copy_send(c, peer, companion());
    b_.recv_copy(c, peer);
  }

  PlanBuilder& b_;
  const Exchanges& e_;
  size_t ahead_;  // blocks
  int me_;
};

void Exchanges::all_reduce(PlanBuilder& b, int ahead) const {
  ExchangingMember member(b, *this, ahead);  // of a companion: the even one's
  if (companion(b.rank())) {
    const int even = b.rank() - 1;
    for (int m = 0; m < members_; ++m) b.send(static_cast<uint32_t>(m), even);
    b.recv_copy(static_cast<uint32_t>(member_of(even)), even);
    member.each_gathered([&](uint32_t c) { b.recv_copy(c, even); });
    return;
  }
  member.scatter_reduce();
  member.all_gather();
}

void Exchanges::reduce_scatter(PlanBuilder& b, int ahead) const {
  ExchangingMember member(b, *this, ahead);
  if (companion(b.rank())) {
    for (int c = 0; c < b.world(); ++c) b.send(static_cast<uint32_t>(c), b.rank() - 1);
    return b.recv_copy(static_cast<uint32_t>(b.rank()), b.rank() - 1);
  }
  member.scatter_reduce();
}

void Exchanges::all_gather(PlanBuilder& b, int ahead) const {
  ExchangingMember member(b, *this, ahead);
  const uint32_t own = static_cast<uint32_t>(b.rank());
  if (companion(b.rank())) {
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

}  // namespace rondo
