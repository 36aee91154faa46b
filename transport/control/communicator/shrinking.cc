#include "transport/control/communicator/shrinking.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace rondo {

namespace {

using Outcome = Membership::Outcome;

}  // namespace

// Membership counts members by their places. A rank that is no member has no place; its messages are ignored.
void Shrinking::receive(Time now, int from, const MembershipMessage& message) {
  if (const int place = members_.place(from); place >= 0) membership(now).receive(now, place, message);
}

// Departures come before the clock: a leader that is lost need not be waited for.
void Shrinking::tick(Time now) {
  if (!membership_) return;
  tell(now);
  membership_->tick(now);
  for (auto& [place, message] : membership_->take_messages()) {
    message.communicator = members_.communicator();
    rank_.actions.push_back(control::Send{members_.ranks()[static_cast<size_t>(place)], std::move(message)});
  }
}

// destroy() in another thread ends shrink(): a communicator that closes agrees on nothing any more.
bool Shrinking::under_way() const {
  return !life_.closing() && membership_ && membership_->outcome() == Outcome::kNone;
}

bool Shrinking::goes_on() const { return membership_ && membership_->outcome() == Outcome::kGoesOn; }

Shrunk Shrinking::result() const {
  if (!goes_on()) throw Exception(failure());
  return {decided(), membership_->decision()->grown};
}

// Why shrink() throws: by the outcome of the membership, in the terms of what the user can do.
Error Shrinking::failure() const {
  const int rank = rank_.settings.rank;
  switch (membership_ ? membership_->outcome() : Outcome::kNone) {
    case Outcome::kLeftOut:
      return {ErrorCode::kEpochStale,
              fmt::format("{} was left out: the communicator goes on as {}; end this process",
                          rank_.settings.name(rank), names(decided())),
              {rank}};
    case Outcome::kNoQuorum: {
      const std::string& given_up = rank_.departures.given_up();
      if (!given_up.empty()) {
        return {ErrorCode::kEpochStale,
                fmt::format("{}; they go on without it, or have ended; end this process", given_up),
                {rank}};
      }
      const std::vector<int> unreached = ranks_where([this](int place) { return !alive(place); });
      return {ErrorCode::kNoQuorum,
              fmt::format("no quorum: nobody goes on, since {} cannot be reached and may go on by themselves: nobody "
                          "has seen their processes end. Start the job again, or end those and call shrink() again",
                          names(unreached)),
              unreached};
    }
    case Outcome::kTimeout: {
      const std::vector<int> places = membership_->awaited();
      const std::vector<int> awaited =
          ranks_where([&](int place) { return std::find(places.begin(), places.end(), place) != places.end(); });
      return {ErrorCode::kTimeout, "shrink() came to no end: waited for " + names(awaited), awaited};
    }
    case Outcome::kNone:
    case Outcome::kGoesOn:
      break;
  }
  return {ErrorCode::kClosed, "the communicator was destroyed in shrink()", {rank}};
}

std::vector<int> Shrinking::ranks_where(const std::function<bool(int place)>& is) const {
  std::vector<int> found;
  for (size_t place = 0; place < members_.ranks().size(); ++place) {
    if (is(static_cast<int>(place))) found.push_back(members_.ranks()[place]);
  }
  return found;
}

std::vector<int> Shrinking::decided() const {
  const MemberSet& set = membership_->decision()->members;
  return ranks_where([&](int place) { return bool{set[static_cast<size_t>(place)]}; });
}

std::string Shrinking::names(const std::vector<int>& ranks) const {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + members_.name(rank);
  return list;
}

// Reached, or proven to have ended.
bool Shrinking::alive(int place) const {
  const int peer = members_.ranks()[static_cast<size_t>(place)];
  return peer == rank_.settings.rank || membership_->is_dead(place) || !rank_.departures.gone(peer);
}

// A new one is told at once of everybody who has departed so far.
Membership& Shrinking::membership(Time now) {
  if (membership_) return *membership_;
  Membership::Settings settings;
  settings.size = static_cast<int>(members_.ranks().size());
  settings.own = members_.place(rank_.settings.rank);
  if (rank_.settings.liveness.suspicion_ms > 0) settings.suspicion_ms = rank_.settings.liveness.suspicion_ms;
  membership_.emplace(settings);
  tell(now);
  return *membership_;
}

// Who is lost, and who has ended. One that has given this rank up has ended its connection, and may live. Departures
// and goodbyes only grow, so an equal number of them is no news.
void Shrinking::tell(Time now) {
  const size_t known = rank_.departures.count() + life_.goodbyes();
  if (told_ == known) return;
  told_ = known;
  for (size_t i = 0; i < members_.ranks().size(); ++i) {
    const int peer = members_.ranks()[i], place = static_cast<int>(i);
    const auto member = life_.others().find(peer);
    if (member == life_.others().end()) continue;
    const bool left = member->second.left && !rank_.departures.given_up_by(peer);
    if (left || rank_.departures.has_ended(peer)) membership_->ended(now, place);
    if (rank_.departures.gone(peer)) membership_->lost(now, place);
    if (rank_.departures.parted(peer)) membership_->parted(place);
  }
}

}  // namespace rondo
