#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/control/membership.h"

namespace rondo::testing {

// The members of a communicator that shrink, in one thread and a made-up time. A world is a value: a search copies it
// and tries each next event. Messages of a pair stay in order; a connection loses what is on its way when it ends.
class MembershipWorld {
 public:
  // What comes next on the way from one member to another.
  struct Item {
    enum class Kind { kMessage, kEnd, kProof };
    Kind kind = Kind::kMessage;
    Membership::Message message;
  };
  using Way = std::pair<int, int>;
  enum class InFlight { kArrives, kVanishes };

  // host[r]: members of one host learn by the kernel's word that one of them has ended. opened: who has the
  // communicator with newcomers; empty: none.
  explicit MembershipWorld(std::vector<int> host, MemberSet opened = {})
      : host_(std::move(host)), opened_(std::move(opened)) {
    opened_.resize(host_.size());
    for (int r = 0; r < size(); ++r) {
      Membership::Settings settings;
      settings.size = size();
      settings.own = r;
      members_.emplace_back(settings);
    }
  }

  int size() const { return static_cast<int>(host_.size()); }
  int64_t now() const { return now_; }
  Membership& member(int r) { return members_[static_cast<size_t>(r)]; }
  const Membership& member(int r) const { return members_[static_cast<size_t>(r)]; }
  bool alive(int r) const { return dead_.count(r) == 0; }
  bool awake(int r) const { return alive(r) && stopped_.count(r) == 0; }
  bool called(int r) const { return called_.count(r) != 0; }

  // --- events
  void call(int r, int64_t patience_ms = 1'000) {
    called_.insert(r);
    member(r).join(now_, patience_ms, opened_[static_cast<size_t>(r)]);
    collect(r);
  }
  void crash(int r, InFlight fate) {
    if (!dead_.insert(r).second) return;
    for (int other = 0; other < size(); ++other) {
      if (other == r) continue;
      end_way({r, other}, fate);
      if (host_[static_cast<size_t>(r)] == host_[static_cast<size_t>(other)]) {
        ways_[{r, other}].push_back({Item::Kind::kProof, {}});
      }
    }
  }
  void stop(int r) { stopped_.insert(r); }
  void go_on(int r) { stopped_.erase(r); }
  void cut(int one, int other, InFlight fate) {
    end_way({one, other}, fate);
    end_way({other, one}, fate);
  }
  // Between those of the set and the others.
  void part(const std::vector<bool>& set, InFlight fate) {
    for (int one = 0; one < size(); ++one) {
      for (int other = 0; other < size(); ++other) {
        if (set[static_cast<size_t>(one)] && !set[static_cast<size_t>(other)]) cut(one, other, fate);
      }
    }
  }
  // Nothing arrives on this way any more, and nobody is told: half open. The receiver finds out by the silence, and
  // ends the connection.
  void swallow(const Way& way) {
    swallowed_.insert(way);
    ways_.erase(way);
  }
  void carry_again(const Way& way) { swallowed_.erase(way); }
  void find_silence(const Way& way) { cut(way.first, way.second, InFlight::kVanishes); }
  void lose_one(const Way& way) { take(way); }
  void deliver(const Way& way) {
    const auto [from, to] = way;
    const Item item = take(way);
    switch (item.kind) {
      case Item::Kind::kMessage:
        member(to).receive(now_, from, item.message);
        break;
      case Item::Kind::kEnd:
        member(to).lost(now_, from);
        break;
      case Item::Kind::kProof:
        member(to).ended(now_, from);
        break;
    }
    collect(to);
  }

  // Where something can be delivered.
  std::vector<Way> ready() const {
    std::vector<Way> ways;
    for (const auto& [way, items] : ways_) {
      if (awake(way.second)) ways.push_back(way);
    }
    return ways;
  }
  // When a member's timer fires; nullopt: none waits.
  std::optional<int64_t> next_time() const {
    std::optional<int64_t> next;
    for (int r = 0; r < size(); ++r) {
      if (!awake(r)) continue;
      if (const auto time = member(r).next_time()) next = next ? std::min(*next, *time) : *time;
    }
    return next;
  }
  void advance(int64_t to) {
    now_ = std::max(now_, to);
    for (int r = 0; r < size(); ++r) {
      if (!awake(r)) continue;
      member(r).tick(now_);
      collect(r);
    }
  }
  // The next that waits, in the order of the ways, a timer after all messages; false: nothing does.
  bool step() {
    const auto next = next_time();
    const auto first =
        std::find_if(ways_.begin(), ways_.end(), [&](const auto& entry) { return awake(entry.first.second); });
    if (first != ways_.end()) {
      deliver(Way(first->first));
    } else if (next) {
      advance(*next);
    } else {
      return false;
    }
    return true;
  }
  void settle_until(int64_t end) {
    while (!ready().empty() || next_time().value_or(end) < end) step();
    advance(end);
  }
  void settle() {
    for (int events = 0; step(); ++events) {
      if (events > 1'000'000) FAIL("no end");
    }
  }

  // --- what must hold
  // Two sets are decided only where all that knew the first had died: never two communicators of one epoch. And each
  // that goes on with newcomers has opened that communicator.
  const std::string& broken() const { return broken_; }
  // What the members that live have ended with: each that goes on is in the set, which all of them know alike.
  std::string wrong_end() const {
    for (int r = 0; r < size(); ++r) {
      if (!awake(r) || !called(r)) continue;
      const auto outcome = member(r).outcome();
      if (outcome == Membership::Outcome::kNone) return fmt::format("member {} waits for ever", r);
      const auto& decision = member(r).decision();
      if (outcome == Membership::Outcome::kGoesOn && !(decision && decision->members[static_cast<size_t>(r)])) {
        return fmt::format("member {} goes on without being one of those who do", r);
      }
      if (outcome == Membership::Outcome::kLeftOut && (!decision || decision->members[static_cast<size_t>(r)])) {
        return fmt::format("member {} is left out of a set that it is in", r);
      }
    }
    return "";
  }
  // Every member that lives and has called goes on, together.
  std::string not_together() const {
    MemberSet living(host_.size());
    for (int r = 0; r < size(); ++r) living[static_cast<size_t>(r)] = alive(r) && called(r);
    for (int r = 0; r < size(); ++r) {
      if (!living[static_cast<size_t>(r)]) continue;
      if (member(r).outcome() != Membership::Outcome::kGoesOn) return fmt::format("member {} does not go on", r);
      bool all_opened = true;
      for (size_t other = 0; other < living.size(); ++other) {
        const bool goes_on = member(r).decision()->members[other];
        if (living[other] && !goes_on) return fmt::format("{} is left out", other);
        all_opened = all_opened && (!goes_on || opened_[other]);
      }
      if (member(r).decision()->grown != all_opened) return "all have the communicator with newcomers, and leave it";
    }
    return "";
  }

 private:
  Item take(const Way& way) {
    const auto found = ways_.find(way);
    Item item = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) ways_.erase(found);
    return item;
  }
  void end_way(const Way& way, InFlight fate) {
    if (!ended_.insert(way).second) return;
    if (fate == InFlight::kVanishes) ways_.erase(way);
    ways_[way].push_back({Item::Kind::kEnd, {}});
  }
  void collect(int r) {
    for (auto& [to, message] : member(r).take_messages()) {
      const Way way{r, to};
      if (ended_.count(way) != 0 || ended_.count({to, r}) != 0 || swallowed_.count(way) != 0 || !alive(to)) continue;
      ways_[way].push_back({Item::Kind::kMessage, std::move(message)});
    }
    const auto& decision = member(r).decision();
    if (!decision || !decided_.insert(r).second) return;
    for (size_t other = 0; decision->grown && other < opened_.size(); ++other) {
      if (decision->members[other] && !opened_[other])
        broken_ = fmt::format("member {} has nothing to go on in", other);
    }
    for (int other = 0; other < size(); ++other) {
      const auto& theirs = member(other).decision();
      if (alive(other) && theirs && *theirs != *decision && broken_.empty()) {
        broken_ = fmt::format("members {} and {} go on with different decisions", r, other);
      }
    }
  }

  std::vector<int> host_;
  MemberSet opened_;
  std::vector<Membership> members_;
  std::map<Way, std::deque<Item>> ways_;  // none is empty
  std::set<Way> ended_, swallowed_;
  std::set<int> dead_, stopped_, called_, decided_;
  int64_t now_ = 0;
  std::string broken_;
};

}  // namespace rondo::testing
