#include "tests/plan/check_streams.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "ring/plan/accesses.h"
#include "ring/plan/goal.h"

namespace rondo {
namespace {

using Kind = StreamEntry::Kind;
using Failure = std::optional<std::string>;

constexpr uint32_t kNoMessage = StreamEntry::kNone;

// A block of a rank's memory, or a place for messages.
struct History {
  Accesses accesses;
  uint32_t message = kNoMessage;  // that is there
  bool taken = false;             // posts: it has been read
};

// For messages: where they lie, and of what they are.
struct AccessedData {
  size_t owner = 0;
  uint32_t message = kNoMessage;
  std::string what;
};

class StreamsRun {
 public:
  StreamsRun(std::span<const Plan> plans, std::span<const StreamProgram> programs, bool in_place)
      : plans_(plans),
        programs_(programs),
        in_place_(in_place),
        world_(plans.size()),
        blocks_(plans[0].blocks),
        memory_(2 * world_ * blocks_),
        places_(world_ * kStreamSlots),
        posts_(world_ * world_ * kStreamSlots),
        actors_(world_) {
    for (const StreamProgram& program : programs) messages_ = std::max(messages_, program.messages);
    for (Actor& actor : actors_) actor.clock.resize(world_), actor.heard.resize(world_);
  }

  Failure run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t rank = 0; rank < world_; ++rank) {
        while (may_move(rank)) {
          if (Failure failure = advance(rank)) return failure;
          moved = true;
        }
      }
    }
    for (size_t rank = 0; rank < world_; ++rank) {
      if (actors_[rank].call < kCalls) return where(rank) + "waits for ever";
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kCalls = 3;

  struct Actor {
    uint32_t call = 0;
    size_t entry = 0;
    bool began = false;  // the call: the rank's program has had its buffers
    VectorClock clock;
    VectorClock heard;  // likewise, by words that order nothing else, too
  };

  std::string where(size_t rank) const {
    return "rank " + std::to_string(rank) + ", call " + std::to_string(actors_[rank].call) + ", entry " +
           std::to_string(actors_[rank].entry) + ": ";
  }
  // What the word says when the entry of this call is through. Messages are counted over all calls.
  uint32_t value(uint32_t call, const StreamEntry& entry) const {
    return entry.index < kArrivedWord ? call + 1 : call * messages_ + entry.messages;
  }
  // Both clocks of `from` when it wrote this into `to`'s word; empty: it has not.
  std::pair<VectorClock, VectorClock>& signal(const StreamEntry& entry, uint32_t call, size_t from, size_t to) {
    return signals_[{entry.index, value(call, entry), static_cast<uint32_t>(from), static_cast<uint32_t>(to)}];
  }
  History& history(size_t owner, bool output, size_t index) {
    return memory_[((in_place_ || output ? 1 : 0) * world_ + owner) * blocks_ + index];
  }

  bool may_move(size_t rank) {
    const Actor& actor = actors_[rank];
    if (actor.call == kCalls) return false;
    if (!actor.began || actor.entry == programs_[rank].entries.size()) return true;
    const StreamEntry& entry = programs_[rank].entries[actor.entry];
    return std::all_of(entry.peers.begin(), entry.peers.end(), [&](int peer) {
      if (entry.kind == Kind::kTake) return post(rank, peer).message == actor.call;
      return entry.kind != Kind::kAwait || !signal(entry, actor.call, static_cast<size_t>(peer), rank).first.empty();
    });
  }
  History& post(size_t to, size_t from, size_t call) {
    return posts_[(to * world_ + from) * kStreamSlots + call % kStreamSlots];
  }
  History& post(size_t rank, int from) { return post(rank, static_cast<size_t>(from), actors_[rank].call); }

  // The program of a rank, between its calls, uses all of its buffers.
  Failure use_own(size_t rank) {
    for (size_t index = 0; index < blocks_; ++index) {
      for (const bool output : {false, true}) {
        if (Failure failure = write(rank, history(rank, output, index), block(rank, index))) return failure;
      }
    }
    return std::nullopt;
  }

  Failure advance(size_t rank) {
    Actor& actor = actors_[rank];
    actor.heard[rank] = ++actor.clock[rank];
    const bool ends = actor.began && actor.entry == programs_[rank].entries.size();
    if (!actor.began || ends) {
      if (Failure failure = use_own(rank)) return failure;
      actor.began = !ends;
      actor.entry = 0;
      actor.call += ends ? 1 : 0;
      return std::nullopt;
    }
    const StreamEntry& entry = programs_[rank].entries[actor.entry];
    for (const int peer : entry.peers) {
      const auto other = static_cast<size_t>(peer);
      if (entry.kind == Kind::kTake) {
        post(rank, peer).accesses.add({static_cast<int>(rank), actor.clock[rank], Accesses::Kind::kRead});
        post(rank, peer).taken = true;
      } else if (entry.kind == Kind::kSignal) {
        signal(entry, actor.call, rank, other) = {actor.clock, actor.heard};
      } else {
        const auto& [clock, heard] = signal(entry, actor.call, other, rank);
        join(actor.heard, heard);
        if (!programs_[rank].posts) join(actor.clock, clock);
      }
    }
    Failure failure;
    if (entry.kind == Kind::kPass) failure = pass(rank, entry);
    if (entry.kind == Kind::kPost) failure = send_posts(rank, entry);
    ++actor.entry;
    return failure;
  }

  Failure send_posts(size_t rank, const StreamEntry& entry) {
    const Actor& actor = actors_[rank];
    for (const Ref& target : targets_of(plans_[rank], plans_[rank].steps[entry.index])) {
      if (target.space != Space::kMailbox) continue;
      History& there = post(target.peer, rank, actor.call);
      const int self = static_cast<int>(rank);
      const bool raced = there.accesses.race(self, actor.heard, Accesses::Kind::kWrite) != nullptr;
      if (there.message != kNoMessage && (!there.taken || raced)) {
        return where(rank) + "overwrites a post that rank " + std::to_string(target.peer) + " may not have taken";
      }
      there.accesses.add({self, actor.clock[rank], Accesses::Kind::kWrite});
      there.message = actor.call;
      there.taken = false;
    }
    return std::nullopt;
  }

  // A copy of own memory to itself writes nothing.
  bool stays_in_place(const Plan& plan, const Step& step, const Ref& target) const {
    const Ref& source = plan.refs[step.first];
    const bool own = !is_remote(source) && !is_remote(target);
    return in_place_ && own && step.sources == 1 && (step.flags & kFinish) == 0 && source.block == target.block;
  }

  Failure pass(size_t rank, const StreamEntry& entry) {
    const Plan& plan = plans_[rank];
    const Step& step = plan.steps[entry.index];
    for (uint32_t i = 0; i < uint32_t{step.sources} + step.targets; ++i) {
      const Ref& ref = plan.refs[step.first + i];
      const bool source = i < step.sources;
      if (!source && stays_in_place(plan, step, ref)) continue;
      if (programs_[rank].posts && ref.space == Space::kMailbox) continue;
      Failure failure;
      if (ref.space == Space::kMailbox) {
        const AccessedData place = source ? message(rank, rank, entry.received) : message(rank, ref.peer, entry.sent);
        History& there = places_[place.owner * kStreamSlots + (source ? entry.received : entry.sent) % kStreamSlots];
        failure = source ? read(rank, there, place) : write(rank, there, place);
      } else {
        const bool window = ref.space == Space::kWindow;
        const size_t owner = window ? ref.peer : rank;
        History& there =
            history(owner, window ? (ref.flags & kPeerOutput) != 0 : ref.space == Space::kOutput, ref.block);
        failure = source ? read(rank, there, block(owner, ref.block)) : write(rank, there, block(owner, ref.block));
      }
      if (failure) return failure;
    }
    return std::nullopt;
  }

  static AccessedData block(size_t owner, size_t index) {
    return {owner, kNoMessage, "block " + std::to_string(index) + " of rank " + std::to_string(owner)};
  }
  AccessedData message(size_t rank, size_t owner, uint32_t of_call) const {
    const uint32_t number = actors_[rank].call * messages_ + of_call;
    return {owner, number, "message " + std::to_string(number) + " to rank " + std::to_string(owner)};
  }

  Failure read(size_t rank, History& there, const AccessedData& place) {
    if (Failure failure = touch(rank, there, place, Accesses::Kind::kRead)) return failure;
    if (place.message == there.message) return std::nullopt;
    return where(rank) + "reads " + place.what + ", which is not there";
  }
  Failure write(size_t rank, History& there, const AccessedData& place) {
    there.message = place.message;
    return touch(rank, there, place, Accesses::Kind::kWrite);
  }
  Failure touch(size_t rank, History& there, const AccessedData& place, Accesses::Kind kind) {
    const Actor& actor = actors_[rank];
    const auto self = static_cast<int>(rank);
    if (const Accesses::Access* other = there.accesses.race(self, actor.clock, kind)) {
      return where(rank) + (kind == Accesses::Kind::kRead ? "reads " : "writes ") + place.what +
             ", and nothing orders this with rank " + std::to_string(other->rank);
    }
    there.accesses.add({self, actor.clock[rank], kind});
    return std::nullopt;
  }

  std::span<const Plan> plans_;
  std::span<const StreamProgram> programs_;
  bool in_place_;
  size_t world_, blocks_;
  uint32_t messages_ = 0;
  std::vector<History> memory_, places_, posts_;
  std::vector<Actor> actors_;
  std::map<std::array<uint32_t, 4>, std::pair<VectorClock, VectorClock>> signals_;  // word, value, from, to
};

// All steps that move data, in their order. Of posts: what they send is sent first, and what one of several sources
// folds has been taken.
Failure check_passes(const Plan& plan, const StreamProgram& program) {
  std::vector<std::pair<Kind, uint32_t>> wanted, found;
  const auto is_mail = [](const Ref& ref) { return ref.space == Space::kMailbox; };
  const auto add = [&](Kind kind, bool there, uint32_t s) {
    if (there) wanted.emplace_back(kind, s);
  };
  for (uint32_t s = 0; s < plan.steps.size() && program.posts; ++s) {
    add(Kind::kPost, std::ranges::any_of(targets_of(plan, plan.steps[s]), is_mail), s);
  }
  for (uint32_t s = 0; s < plan.steps.size(); ++s) {
    const auto sources = sources_of(plan, plan.steps[s]), targets = targets_of(plan, plan.steps[s]);
    const bool takes = program.posts && std::ranges::any_of(sources, is_mail);
    const bool all_sent = program.posts && std::ranges::all_of(targets, is_mail);
    add(Kind::kTake, takes, s);
    add(Kind::kPass, !sources.empty() && !targets.empty() && !all_sent && !(takes && sources.size() == 1), s);
  }
  for (const StreamEntry& entry : program.entries) {
    if (entry.kind != Kind::kSignal && entry.kind != Kind::kAwait) found.emplace_back(entry.kind, entry.index);
  }
  if (wanted == found) return std::nullopt;
  return "rank " + std::to_string(plan.rank) + ": the passes are not the plan's steps";
}

}  // namespace

std::optional<std::string> check_streams(std::span<const Plan> plans, std::span<const StreamProgram> programs) {
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    if (Failure failure = check_passes(plans[rank], programs[rank])) return failure;
  }
  if (Failure failure = StreamsRun(plans, programs, false).run()) return "out of place: " + *failure;
  if (!in_place_possible(plans[0].collective)) return std::nullopt;
  if (Failure failure = StreamsRun(plans, programs, true).run()) return "in place: " + *failure;
  return std::nullopt;
}

}  // namespace rondo
