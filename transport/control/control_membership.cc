#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/control/control_logic.h"

// ControlLogic: who goes on after a failure.

namespace rondo {
namespace {

using Outcome = Membership::Outcome;

}  // namespace

void ControlLogic::shrink(Time now, uint64_t communicator, Time patience_ms, bool opened) {
  Group* group = find(communicator);
  if (group == nullptr || group->closing) return;
  membership_of(now, *group).join(now, patience_ms, opened);
  drive_memberships(now);
}

void ControlLogic::ended(Time now, int peer) {
  ended_.insert(peer);
  drive_memberships(now);
}

bool ControlLogic::shrinking(uint64_t communicator) const {
  const Group* group = find(communicator);
  return group != nullptr && !group->closing && group->membership && group->membership->outcome() == Outcome::kNone;
}

Shrunk ControlLogic::shrunk(uint64_t communicator) const {
  const Group* group = find(communicator);
  const Membership* membership = group != nullptr && group->membership ? &*group->membership : nullptr;
  const Outcome outcome = membership != nullptr ? membership->outcome() : Outcome::kNone;
  const auto names = [&](const auto& which) {
    std::string list;
    for (size_t i = 0; i < group->order.size(); ++i) {
      if (which(static_cast<int>(i))) list += (list.empty() ? "" : ", ") + name_in(*group, group->order[i]);
    }
    return list;
  };
  Error error;
  switch (outcome) {
    case Outcome::kGoesOn: {
      Shrunk agreed{{}, membership->decision()->grown};
      for (size_t i = 0; i < group->order.size(); ++i) {
        if (membership->decision()->members[i]) agreed.members.push_back(group->order[i]);
      }
      return agreed;
    }
    case Outcome::kLeftOut:
      error = {ErrorCode::kEpochStale,
               fmt::format("{} was left out: the communicator goes on as {}; end this process", name(settings_.rank),
                           names([&](int i) { return bool{membership->decision()->members[static_cast<size_t>(i)]}; })),
               {settings_.rank}};
      break;
    case Outcome::kNoQuorum:
      if (!given_up_.empty()) {
        error = {ErrorCode::kEpochStale,
                 fmt::format("{}; they go on without it, or have ended; end this process", given_up_),
                 {settings_.rank}};
        break;
      }
      error = {ErrorCode::kNoQuorum,
               fmt::format("no quorum: nobody goes on, since {} cannot be reached and may go on by themselves: nobody "
                           "has seen their processes end. Start the job again, or end those and call shrink() again",
                           names([&](int i) { return !alive(*membership, *group, i); })),
               {}};
      for (size_t i = 0; i < group->order.size(); ++i) {
        if (!alive(*membership, *group, static_cast<int>(i))) error.ranks.push_back(group->order[i]);
      }
      break;
    case Outcome::kTimeout: {
      const std::vector<int> awaited = membership->awaited();
      error = {ErrorCode::kTimeout,
               fmt::format("shrink() came to no end: waited for {}",
                           names([&](int i) { return std::find(awaited.begin(), awaited.end(), i) != awaited.end(); })),
               {}};
      for (const int i : awaited) error.ranks.push_back(group->order[static_cast<size_t>(i)]);
      break;
    }
    case Outcome::kNone:
      error = {ErrorCode::kClosed, "the communicator was destroyed in shrink()", {settings_.rank}};
      break;
  }
  throw Exception(error);
}

// Reached, or proven to have ended.
bool ControlLogic::alive(const Membership& membership, const Group& group, int place) const {
  const int peer = group.order[static_cast<size_t>(place)];
  return peer == settings_.rank || membership.is_dead(place) || !gone(peer);
}

void ControlLogic::on(Time now, int from, const MembershipMessage& message) {
  Group* group = find(message.communicator);
  if (group != nullptr) {
    const auto place = std::find(group->order.begin(), group->order.end(), from);
    if (place == group->order.end()) return;
    membership_of(now, *group).receive(now, static_cast<int>(place - group->order.begin()), message);
    return drive_memberships(now);
  }
  const auto closed = closed_.find(message.communicator);
  if (closed == closed_.end() || !closed->second.decision) return;
  using Kind = MembershipMessage::Kind;
  if (message.kind != Kind::kJoin && message.kind != Kind::kPrepare && message.kind != Kind::kPropose) return;
  MembershipMessage answer;
  answer.communicator = message.communicator;
  answer.kind = Kind::kDecided;
  answer.value = *closed->second.decision;
  actions_.push_back(Send{from, std::move(answer)});
}

Membership& ControlLogic::membership_of(Time now, Group& group) {
  if (group.membership) return *group.membership;
  Membership::Settings settings;
  settings.size = static_cast<int>(group.order.size());
  settings.own = place_in(group, settings_.rank);
  if (settings_.liveness.suspicion_ms > 0) settings.suspicion_ms = settings_.liveness.suspicion_ms;
  group.membership.emplace(settings);
  tell_membership(now, group);
  return *group.membership;
}

// A number that grows with whatever tell_membership() says but goodbyes to the group.
size_t ControlLogic::departures() const {
  return lost_.size() + left_.size() + resigned_.size() + ended_.size() + given_up_by_.size() + parted_.size();
}

// Who is lost, and who has ended. One that has given this rank up has ended its connection, and may live.
void ControlLogic::tell_membership(Time now, Group& group) {
  if (group.told == departures()) return;
  group.told = departures();
  for (size_t i = 0; i < group.order.size(); ++i) {
    const int peer = group.order[i], place = static_cast<int>(i);
    const auto member = group.members.find(peer);
    if (member == group.members.end()) continue;
    const bool left = member->second.left && given_up_by_.count(peer) == 0;
    if (left || ended_.count(peer) != 0) group.membership->ended(now, place);
    if (gone(peer)) group.membership->lost(now, place);
    if (parted_.count(peer) != 0) group.membership->parted(place);
  }
}

void ControlLogic::drive_memberships(Time now) {
  for (auto& [id, group] : groups_) {
    if (!group.membership) continue;
    tell_membership(now, group);
    group.membership->tick(now);
    for (auto& [place, message] : group.membership->take_messages()) {
      message.communicator = id;
      actions_.push_back(Send{group.order[static_cast<size_t>(place)], std::move(message)});
    }
  }
}

bool ControlLogic::goes_on(const Group& group) const {
  return group.membership && group.membership->outcome() == Outcome::kGoesOn;
}

}  // namespace rondo
