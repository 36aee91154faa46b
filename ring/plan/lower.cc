#include "ring/plan/lower.h"

#include <algorithm>

#include "ring/plan/describe.h"
#include "ring/plan/goal.h"
#include "rondo/error.h"

namespace rondo {
namespace {

using Kind = StreamEntry::Kind;

std::vector<int> others(const Plan& plan) {
  std::vector<int> ranks;
  for (int rank = 0; rank < plan.world; ++rank) {
    if (rank != plan.rank) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> peers_of(std::span<const Ref> refs) {
  std::vector<int> peers;
  for (const Ref& ref : refs) peers.push_back(ref.peer);
  std::sort(peers.begin(), peers.end());
  return peers;
}

bool moves_data(const Step& step) { return step.sources > 0 && step.targets > 0; }

void check_refs(const Plan& plan, const Step& step) {
  for (const Ref& ref : refs_of(plan, step)) {
    const bool link = ref.space == Space::kMailbox && moves_data(step);
    if (!link && ref.space != Space::kScratch && (ref.flags & kStaging) == 0) continue;
    throw Exception(ErrorCode::kInternal, "a stream has no " + describe(plan, ref));
  }
}

}  // namespace

StreamProgram lower(const Plan& plan) {
  if (plan.lanes.size() != 1) throw Exception(ErrorCode::kInternal, "a stream has one lane");
  StreamProgram program;
  program.words = 1;
  program.entries.push_back({Kind::kSignal, 0, others(plan)});
  program.entries.push_back({Kind::kAwait, 0, others(plan)});
  const uint32_t first = plan.lanes[0].first;
  for (uint32_t s = first; s < first + plan.lanes[0].count; ++s) {
    const Step& step = plan.steps[s];
    check_refs(plan, step);
    program.words = std::max<uint32_t>(program.words, step.barrier + 1u);
    if (moves_data(step)) {
      program.entries.push_back({Kind::kPass, s, {}});
    } else if (step.sources == 0) {
      program.entries.push_back({Kind::kSignal, step.barrier, peers_of(targets_of(plan, step))});
    } else {
      program.entries.push_back({Kind::kAwait, step.barrier, peers_of(sources_of(plan, step))});
    }
  }
  return program;
}

namespace {

using Failure = std::optional<std::string>;

// [r] events of rank r that are known to be over.
using Clock = std::vector<uint32_t>;

// Of a block of a rank's memory: who has written it last, and who has read it since.
struct History {
  int writer = -1;
  uint32_t written = 0;
  std::vector<std::pair<int, uint32_t>> reads;
};

class StreamsRun {
 public:
  StreamsRun(std::span<const Plan> plans, std::span<const StreamProgram> programs, bool in_place)
      : plans_(plans),
        programs_(programs),
        in_place_(in_place),
        world_(plans.size()),
        chunks_(plans[0].chunks),
        memory_(2 * world_ * chunks_),
        actors_(world_) {
    for (const StreamProgram& program : programs) words_ = std::max<size_t>(words_, program.words);
    signals_.resize(kCalls * words_ * world_ * world_);
    for (Actor& actor : actors_) actor.clock.resize(world_);
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
    size_t call = 0, entry = 0;
    bool began = false;  // the call: the rank's program has had its buffers
    Clock clock;
  };

  std::string where(size_t rank) const {
    return "rank " + std::to_string(rank) + ", call " + std::to_string(actors_[rank].call) + ", entry " +
           std::to_string(actors_[rank].entry) + ": ";
  }
  // The clock of `from` when it wrote `to`'s word; empty: it has not.
  Clock& signal(size_t call, size_t word, size_t from, size_t to) {
    return signals_[((call * words_ + word) * world_ + from) * world_ + to];
  }
  History& history(size_t owner, bool output, size_t chunk) {
    return memory_[((in_place_ || output ? 1 : 0) * world_ + owner) * chunks_ + chunk];
  }

  bool may_move(size_t rank) {
    const Actor& actor = actors_[rank];
    if (actor.call == kCalls) return false;
    if (!actor.began || actor.entry == programs_[rank].entries.size()) return true;
    const StreamEntry& entry = programs_[rank].entries[actor.entry];
    return entry.kind != Kind::kAwait || std::all_of(entry.peers.begin(), entry.peers.end(), [&](int peer) {
             return !signal(actor.call, entry.index, static_cast<size_t>(peer), rank).empty();
           });
  }

  // The program of a rank, between its calls, uses all of its buffers.
  Failure use_own(size_t rank) {
    for (size_t chunk = 0; chunk < chunks_; ++chunk) {
      for (const bool output : {false, true}) {
        if (Failure failure = write(rank, rank, output, chunk)) return failure;
      }
    }
    return std::nullopt;
  }

  Failure advance(size_t rank) {
    Actor& actor = actors_[rank];
    ++actor.clock[rank];
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
      if (entry.kind == Kind::kSignal) {
        signal(actor.call, entry.index, rank, other) = actor.clock;
      } else {
        const Clock& heard = signal(actor.call, entry.index, other, rank);
        for (size_t r = 0; r < world_; ++r) actor.clock[r] = std::max(actor.clock[r], heard[r]);
      }
    }
    if (entry.kind == Kind::kPass) {
      if (Failure failure = pass(rank, plans_[rank].steps[entry.index])) return failure;
    }
    ++actor.entry;
    return std::nullopt;
  }

  // A copy of own memory to itself writes nothing.
  bool stays_in_place(const Plan& plan, const Step& step, const Ref& target) const {
    const Ref& source = plan.refs[step.first];
    const bool own = source.space != Space::kWindow && target.space != Space::kWindow;
    return in_place_ && own && step.sources == 1 && (step.flags & kFinish) == 0 && source.chunk == target.chunk;
  }

  Failure pass(size_t rank, const Step& step) {
    const Plan& plan = plans_[rank];
    for (uint32_t i = 0; i < uint32_t{step.sources} + step.targets; ++i) {
      const Ref& ref = plan.refs[step.first + i];
      const bool window = ref.space == Space::kWindow;
      if (i >= step.sources && stays_in_place(plan, step, ref)) continue;
      const size_t owner = window ? ref.peer : rank;
      const bool output = window ? (ref.flags & kPeerOutput) != 0 : ref.space == Space::kOutput;
      Failure failure = i < step.sources ? read(rank, owner, output, ref.chunk) : write(rank, owner, output, ref.chunk);
      if (failure) return failure;
    }
    return std::nullopt;
  }

  bool knows(size_t rank, int other, uint32_t event) const {
    return other < 0 || static_cast<size_t>(other) == rank || actors_[rank].clock[static_cast<size_t>(other)] >= event;
  }
  std::string unordered(size_t rank, size_t owner, size_t chunk, const char* what, int other) const {
    return where(rank) + what + " block " + std::to_string(chunk) + " of rank " + std::to_string(owner) +
           ", and nothing orders this with rank " + std::to_string(other);
  }

  Failure read(size_t rank, size_t owner, bool output, size_t chunk) {
    History& block = history(owner, output, chunk);
    if (!knows(rank, block.writer, block.written)) return unordered(rank, owner, chunk, "reads", block.writer);
    block.reads.emplace_back(static_cast<int>(rank), actors_[rank].clock[rank]);
    return std::nullopt;
  }
  Failure write(size_t rank, size_t owner, bool output, size_t chunk) {
    History& block = history(owner, output, chunk);
    if (!knows(rank, block.writer, block.written)) return unordered(rank, owner, chunk, "writes", block.writer);
    for (const auto& [reader, event] : block.reads) {
      if (!knows(rank, reader, event)) return unordered(rank, owner, chunk, "writes", reader);
    }
    block = {static_cast<int>(rank), actors_[rank].clock[rank], {}};
    return std::nullopt;
  }

  std::span<const Plan> plans_;
  std::span<const StreamProgram> programs_;
  bool in_place_;
  size_t world_, chunks_, words_ = 0;
  std::vector<History> memory_;
  std::vector<Actor> actors_;
  std::vector<Clock> signals_;
};

// All steps that move data, in their order.
Failure check_passes(const Plan& plan, const StreamProgram& program) {
  std::vector<uint32_t> wanted, found;
  for (uint32_t s = 0; s < plan.steps.size(); ++s) {
    if (moves_data(plan.steps[s])) wanted.push_back(s);
  }
  for (const StreamEntry& entry : program.entries) {
    if (entry.kind == Kind::kPass) found.push_back(entry.index);
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
