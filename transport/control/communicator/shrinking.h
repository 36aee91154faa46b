#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/control/communicator/communicator_life.h"
#include "transport/control/communicator/member_names.h"
#include "transport/control/communicator/rank_view.h"
#include "transport/control/membership.h"
#include "transport/fabric.h"

namespace rondo {

// Fabric::shrink() of a communicator: its Membership, once anybody shrinks it, told of all departures. Part of
// ControlLogic. Not thread safe.
class Shrinking {
 public:
  using Time = int64_t;  // milliseconds of a clock that never goes back

  // All of them outlive it.
  Shrinking(const MemberNames& members, const CommunicatorLife& life, const RankView& rank)
      : members_(members), life_(life), rank_(rank) {}

  // --- events
  void join(Time now, Time patience_ms, bool opened) { membership(now).join(now, patience_ms, opened); }
  void receive(Time now, int from, const MembershipMessage& message);
  // After every event of the rank, too.
  void tick(Time now);

  // --- questions
  std::optional<Time> next_time() const { return membership_ ? membership_->next_time() : std::nullopt; }
  // Membership's outcome: shrink() waits while under_way(), and goes_on() says whether this rank is among those that go
  // on.
  bool under_way() const;
  bool goes_on() const;
  std::optional<Decision> decision() const { return membership_ ? membership_->decision() : std::nullopt; }
  // Who goes on, in the communicator's order. Throws Exception: kEpochStale, kNoQuorum, kTimeout.
  Shrunk result() const;

 private:
  // Made at the first call of any member, since most communicators are never shrunk.
  Membership& membership(Time now);
  void tell(Time now);
  bool alive(int place) const;
  std::vector<int> ranks_where(const std::function<bool(int place)>& is) const;
  // World ranks, in the communicator's order.
  std::vector<int> decided() const;
  std::string names(const std::vector<int>& ranks) const;
  Error failure() const;

  const MemberNames& members_;
  const CommunicatorLife& life_;
  const RankView& rank_;
  std::optional<Membership> membership_;
  std::optional<size_t> told_;  // it knows so many departures and goodbyes
};

}  // namespace rondo
