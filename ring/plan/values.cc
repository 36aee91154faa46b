#include "ring/plan/values.h"

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "ring/plan/accesses.h"
#include "ring/plan/describe.h"
#include "ring/plan/expression.h"
#include "ring/plan/goal.h"
#include "ring/plan/structure.h"
#include "rondo/error.h"

namespace rondo {
namespace {

using Failure = std::optional<std::string>;
using Operand = Expressions::Operand;

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

// A block on its way through a link: a value, or a signal. It carries the sender's clock and whom it had heard from.
struct Parcel {
  uint32_t length = kSignalLength;
  Value value = kNoValue;
  uint16_t barrier = 0;
  std::vector<bool> heard;  // barrier: of whom the sender had heard
  VectorClock clock;        // the sender's
  uint32_t depth = 0;       // the sending step's
  size_t sent = 0;          // its index in ValueTrace::steps
};

// One rank: its memory and how far it is.
struct Actor {
  const Plan* plan = nullptr;
  uint32_t done = 0;  // steps in this round
  uint32_t round = 0;
  VectorClock clock;                      // its own entry: its steps so far, of all rounds
  std::vector<Accesses> accesses;         // of `memory`, where plans have windows
  std::vector<Value> memory;              // by memory_index()
  std::vector<std::deque<Parcel>> inbox;  // by index in plan->peers
  std::vector<bool> heard;
  std::vector<bool> encoded;  // by block
  uint32_t depth = 0;         // ValueTrace::Executed::depth of its last step
};

// All ranks, run one step at a time on values instead of bytes (expression.h).
class ValueRun {
 public:
  ValueRun(std::span<const Plan> plans, Buffers buffers, Scaling scaling, Wire wire = Wire::kPlain);
  // Runs all steps of all ranks, in any order that the links allow.
  Failure run();
  // Compares all promised outputs, of all rounds, with what they hold. After run().
  Failure check_outputs();
  Failure check_heard() const;
  // run() appends the first round. Values stay empty until fill_values().
  void record(ValueTrace* trace) { trace_ = trace; }
  void fill_values() const;

 private:
  // Where a ref lies in Actor::memory of the rank that owns it, in the actor's round.
  size_t memory_index(const Actor& actor, const Ref& ref) const;
  // The rank whose memory a ref means.
  Actor& owner(Actor& actor, const Ref& ref) { return ref.space == Space::kWindow ? actors_[ref.peer] : actor; }
  bool finished(const Actor& actor) const { return actor.round == rounds_; }
  const Step& next_step(const Actor& actor) const;
  void pass_step(Actor& actor);
  Failure touch(Actor& actor, const Ref& ref, Accesses::Kind kind);
  Failure check_released() const;
  const Ref* waits_for(const Actor& actor) const;  // a mailbox that is empty; nullptr: the next step can run
  Failure advance(Actor& actor);
  Failure execute(Actor& actor);
  void record_step(const Actor& actor, const Step& step, std::span<const Operand> operands, const Parcel& parcel) const;
  bool stays_in_place(const Actor& actor, const Step& step, const Ref& target) const;
  Failure load(Actor& actor, const Step& step, const Ref& ref, Operand& operand);
  Failure check_operand(const Actor& actor, const Ref& ref, const Operand& operand) const;
  Failure fold(Actor& actor, const Step& step, std::span<const Operand> operands, Value& value);
  Failure encode(Actor& actor, const Step& step, Parcel& parcel, Value& stored);
  Failure check_output(const Actor& actor, const Promise& promise);
  Failure check_folded(const Plan& plan, uint32_t block, int first, Value value);
  Failure stuck() const;
  std::string here(const Actor& actor) const { return place_of(*actor.plan, actor.done) + ": "; }
  // Parcels from one peer, in the order in which it sent them. Requires that it is a peer.
  std::deque<Parcel>& inbox(Actor& actor, int from) const {
    const std::vector<int>& peers = actor.plan->peers;
    return actor.inbox[static_cast<size_t>(std::lower_bound(peers.begin(), peers.end(), from) - peers.begin())];
  }

  std::span<const Plan> plans_;
  Buffers buffers_;
  Scaling scaling_;
  Wire wire_;
  bool reduces_;
  bool windows_;
  // Staging memory is used again in the next, or where it takes turns in the next but one; everything else does not
  // meet across rounds. (To such plans the next call is a round like any other: nothing lies between them.)
  uint32_t rounds_;
  Expressions expressions_;
  std::vector<Actor> actors_;
  std::vector<int> ready_;  // ranks that may be able to move
  // By block: the folded value, and the first rank that has it.
  std::map<uint32_t, std::pair<Value, int>> agreed_;
  ValueTrace* trace_ = nullptr;
};

ValueRun::ValueRun(std::span<const Plan> plans, Buffers buffers, Scaling scaling, Wire wire)
    : plans_(plans),
      buffers_(buffers),
      scaling_(scaling),
      wire_(wire),
      reduces_(collective_reduces(plans[0].collective)),
      windows_(has_windows(plans)),
      rounds_(has_posts(plans) ? 4
              : windows_       ? 2
                               : 1),
      actors_(plans.size()) {
  for (size_t r = 0; r < plans.size(); ++r) {
    const Plan& plan = plans[r];
    Actor& actor = actors_[r];
    actor.plan = &plan;
    actor.memory.assign(size_t{2 * rounds_ + plan.scratch_slots + 2} * plan.blocks, kNoValue);
    for (uint32_t c = 0; c < plan.blocks; ++c) {
      if (!holds_input(plan, c)) continue;
      for (uint32_t round = 0; round < rounds_; ++round) {
        actor.memory[2 * round * plan.blocks + c] = expressions_.leaf(plan.rank, round * plan.blocks + c);
      }
    }
    actor.inbox.resize(plan.peers.size());
    actor.heard.assign(plans.size(), false);
    actor.heard[r] = true;
    actor.encoded.assign(plan.blocks, false);
    actor.clock.assign(plans.size(), 0);
    if (windows_) actor.accesses.resize(actor.memory.size());
    if (plan.steps.empty()) actor.round = rounds_;
    ready_.push_back(static_cast<int>(r));
  }
}

// A round has an input and an output of its own, one memory if in place; scratch and staging memory are the same in
// all.
size_t ValueRun::memory_index(const Actor& actor, const Ref& ref) const {
  const size_t blocks = actor.plan->blocks;
  const size_t input = 2 * actor.round * blocks;
  const size_t output = buffers_ == Buffers::kInPlace ? input : input + blocks;
  switch (ref.space) {
    case Space::kInput:
      return input + ref.block;
    case Space::kOutput:
      return output + ref.block;
    case Space::kWindow:
      if ((ref.flags & kStaging) != 0) {
        const bool turns = (ref.flags & kTurns) != 0;
        const size_t first = 2 * rounds_ + actors_[ref.peer].plan->scratch_slots + (turns ? actor.round % 2 : 0);
        return first * blocks + (turns ? place_in_post(*actor.plan, ref) : ref.block);
      }
      return ((ref.flags & kPeerOutput) != 0 ? output : input) + ref.block;
    default:
      return 2 * rounds_ * blocks + ref.block;
  }
}

const Step& ValueRun::next_step(const Actor& actor) const { return actor.plan->steps[actor.done]; }

// Counts the step in the rank's own clock: from now on the others can hear of it.
void ValueRun::pass_step(Actor& actor) {
  ++actor.clock[static_cast<size_t>(actor.plan->rank)];
  if (++actor.done < actor.plan->steps.size()) return;
  actor.done = 0;
  ++actor.round;
}

// Memory that several ranks reach: a rank may read what it has heard to be written, and overwrite what it has heard to
// be read.
Failure ValueRun::touch(Actor& actor, const Ref& ref, Accesses::Kind kind) {
  if (!windows_) return std::nullopt;
  Accesses& accesses = owner(actor, ref).accesses[memory_index(actor, ref)];
  const int me = actor.plan->rank;
  if (const Accesses::Access* other = accesses.race(me, actor.clock, kind)) {
    const std::string what = describe(*actor.plan, ref), who = rank_name(other->rank);
    if (kind == Accesses::Kind::kRead) {
      return here(actor) + "reads " + what + " without having heard that " + who + " has written it";
    }
    if (other->kind == Accesses::Kind::kRead) {
      return here(actor) + "overwrites " + what + ", which " + who + " may still be reading";
    }
    return here(actor) + "writes " + what + ", which " + who + " may be writing";
  }
  accesses.add({me, actor.clock[static_cast<size_t>(me)] + 1, kind});
  return std::nullopt;
}

// A call returns only when no rank uses the caller's memory any more. (Staging memory is the library's:
// the next call begins with all ranks hearing from all.)
Failure ValueRun::check_released() const {
  if (!windows_) return std::nullopt;
  for (const Actor& actor : actors_) {
    const std::string who = rank_name(actor.plan->rank) + ": returns while ";
    for (size_t i = 0; i < size_t{2 * rounds_} * actor.plan->blocks; ++i) {
      const Accesses::Access* other = actor.accesses[i].race(actor.plan->rank, actor.clock, Accesses::Kind::kWrite);
      if (other == nullptr) continue;
      const bool writes = other->kind == Accesses::Kind::kWrite;
      return who + rank_name(other->rank) + (writes ? " may still write its output" : " may still read its buffers");
    }
  }
  return std::nullopt;
}

const Ref* ValueRun::waits_for(const Actor& actor) const {
  for (const Ref& ref : sources_of(*actor.plan, next_step(actor))) {
    if (ref.space == Space::kMailbox && inbox(const_cast<Actor&>(actor), ref.peer).empty()) return &ref;
  }
  return nullptr;
}

Failure ValueRun::run() {
  while (!ready_.empty()) {
    Actor& actor = actors_[static_cast<size_t>(ready_.back())];
    ready_.pop_back();
    if (Failure failure = advance(actor)) return failure;
  }
  if (Failure failure = stuck()) return failure;
  return check_released();
}

// Runs one rank's steps until one waits for a block. Links have no limit here: progress is Machine's to prove.
Failure ValueRun::advance(Actor& actor) {
  while (!finished(actor)) {
    const Step& step = next_step(actor);
    const bool now = actor.round == 0 || (step.flags & kEachRound) != 0 ||
                     length_of(*actor.plan, step) != kSignalLength;  // signals of the first round only
    if (now && waits_for(actor) != nullptr) break;
    if (now) {
      if (Failure failure = execute(actor)) return failure;
    }
    pass_step(actor);
  }
  return std::nullopt;
}

// A source's value. A block from a link must be the one that the step expects, and brings the sender's knowledge with
// it.
Failure ValueRun::load(Actor& actor, const Step& step, const Ref& ref, Operand& operand) {
  if (ref.space == Space::kMailbox) {
    std::deque<Parcel>& queue = inbox(actor, ref.peer);
    const Parcel parcel = std::move(queue.front());
    queue.pop_front();
    if (parcel.length != length_of(*actor.plan, step)) {
      return here(actor) + "expects another block than " + rank_name(ref.peer) + " sends (" +
             (parcel.length == kSignalLength ? "a signal" : expressions_.text(parcel.value)) + ")";
    }
    if (parcel.barrier != step.barrier) {
      return here(actor) + "waits at barrier " + std::to_string(step.barrier) + ", and " + rank_name(ref.peer) +
             " signals at " + std::to_string(parcel.barrier);
    }
    for (size_t r = 0; r < parcel.heard.size(); ++r) actor.heard[r] = actor.heard[r] || parcel.heard[r];
    join(actor.clock, parcel.clock);
    const bool coded = wire_ == Wire::kCoded && parcel.value != kNoValue;
    operand.value = coded ? expressions_.decode(parcel.value) : parcel.value;
    actor.depth = std::max(actor.depth, parcel.depth + 1);
    if (trace_ != nullptr && actor.round == 0) trace_->messages.push_back({parcel.sent, trace_->steps.size()});
  } else {
    if (Failure failure = touch(actor, ref, Accesses::Kind::kRead)) return failure;
    operand.value = owner(actor, ref).memory[memory_index(actor, ref)];
    if (operand.value == kNoValue) return here(actor) + "reads " + describe(*actor.plan, ref) + " before it is written";
  }
  if ((ref.flags & kScale) != 0) {
    operand.scaled_by = scaling_ == Scaling::kAtSource ? actor.plan->rank : Expressions::kCommonFactor;
  }
  return check_operand(actor, ref, operand);
}

// A factor applies to a raw contribution only. At the source, a rank knows no factor but its own.
Failure ValueRun::check_operand(const Actor& actor, const Ref& ref, const Operand& operand) const {
  if (operand.scaled_by == Expressions::kUnscaled) return std::nullopt;
  const std::string what = describe(*actor.plan, ref);
  if (operand.value == kNoValue || !expressions_.is_leaf(expressions_.plain(operand.value))) {
    return here(actor) + "scales " + what + ", which is no raw contribution: " + expressions_.text(operand.value);
  }
  if (scaling_ == Scaling::kAtSource && expressions_.rank_of(operand.value) != actor.plan->rank) {
    return here(actor) + "scales " + what + " by its own factor, though it is of " +
           rank_name(expressions_.rank_of(operand.value));
  }
  return std::nullopt;
}

// The value of a step, after the rules of scale and finish. At the source, each product is a value of its own, rounded,
// wherever it is made; at the fold, scaling is part of the fold.
Failure ValueRun::fold(Actor& actor, const Step& step, std::span<const Operand> operands, Value& value) {
  const bool finish = (step.flags & kFinish) != 0;
  const bool folds = operands.size() > 1 || finish;
  std::vector<Operand> list(operands.begin(), operands.end());
  for (Operand& operand : list) {
    const Value plain = expressions_.plain(operand.value);
    if (folds && expressions_.finished(plain)) {
      return here(actor) + "folds a value that is finished already: " + expressions_.text(operand.value);
    }
    if (operand.scaled_by != Expressions::kUnscaled && scaling_ == Scaling::kAtSource) {
      operand = {expressions_.fold({&operand, 1}, false), Expressions::kUnscaled};
    } else if (operand.scaled_by != Expressions::kUnscaled && !folds) {
      return here(actor) + "scales a contribution that it does not fold";
    } else if (folds && reduces_ && operand.scaled_by == Expressions::kUnscaled && expressions_.is_leaf(plain)) {
      return here(actor) + "folds a contribution that was not scaled: " + expressions_.text(operand.value);
    }
  }
  value = expressions_.fold(list, finish);
  return std::nullopt;
}

// What a step sends in a wire format, and what it stores. `parcel.value`: what it has folded or copied.
Failure ValueRun::encode(Actor& actor, const Step& step, Parcel& parcel, Value& stored) {
  const Plan& plan = *actor.plan;
  const std::span<const Ref> targets = targets_of(plan, step);
  const auto sent = [](const Ref& ref) { return ref.space == Space::kMailbox; };
  if (std::none_of(targets.begin(), targets.end(), sent)) return std::nullopt;
  const bool passes_on = step.sources == 1 && (step.flags & kFinish) == 0 && sent(plan.refs[step.first]);
  if (passes_on) {
    parcel.value = expressions_.operands(stored)[0].value;  // the bytes as they came
    return std::nullopt;
  }
  const uint32_t block = parcel.length % plan.blocks;
  if (actor.encoded[block]) return here(actor) + "encodes block " + std::to_string(block) + " a second time";
  actor.encoded[block] = true;
  parcel.value = expressions_.encode(parcel.value);
  stored = expressions_.decode(parcel.value);
  return std::nullopt;
}

// A copy of memory to itself: in place, no byte is written.
bool ValueRun::stays_in_place(const Actor& actor, const Step& step, const Ref& target) const {
  const Ref& source = actor.plan->refs[step.first];
  const auto own = [](const Ref& ref) { return ref.space == Space::kInput || ref.space == Space::kOutput; };
  return step.sources == 1 && source.flags == 0 && (step.flags & kFinish) == 0 && own(source) && own(target) &&
         memory_index(actor, source) == memory_index(actor, target);
}

// Loads all sources, folds, then writes all targets: a step reads before it writes, as a kernel does block by block.
Failure ValueRun::execute(Actor& actor) {
  const Plan& plan = *actor.plan;
  const Step& step = next_step(actor);
  std::vector<Operand> operands(step.sources);
  for (uint32_t i = 0; i < step.sources; ++i) {
    if (Failure failure = load(actor, step, plan.refs[step.first + i], operands[i])) return failure;
  }
  Parcel parcel;
  parcel.length = length_of(plan, step);
  parcel.barrier = step.barrier;
  if (windows_) parcel.clock = actor.clock;
  if (parcel.length == kSignalLength) {
    parcel.heard = actor.heard;
  } else if (Failure failure = fold(actor, step, operands, parcel.value)) {
    return failure;
  }
  Value stored = parcel.value;
  if (wire_ == Wire::kCoded && stored != kNoValue) {
    if (Failure failure = encode(actor, step, parcel, stored)) return failure;
  }
  parcel.depth = actor.depth;
  if (trace_ != nullptr && actor.round == 0) {
    parcel.sent = trace_->steps.size();
    record_step(actor, step, operands, parcel);
  }
  for (const Ref& ref : targets_of(plan, step)) {
    if (ref.space == Space::kMailbox) {
      inbox(actors_[ref.peer], plan.rank).push_back(parcel);
      ready_.push_back(ref.peer);
    } else {
      if (stored == parcel.value && stays_in_place(actor, step, ref)) continue;
      if (Failure failure = touch(actor, ref, Accesses::Kind::kWrite)) return failure;
      const bool narrows = wire_ == Wire::kCoded && ref.space == Space::kOutput;
      owner(actor, ref).memory[memory_index(actor, ref)] = narrows ? expressions_.narrow(stored) : stored;
    }
  }
  return std::nullopt;
}

void ValueRun::record_step(const Actor& actor, const Step& step, std::span<const Operand> operands,
                           const Parcel& parcel) const {
  ValueTrace::Executed executed;
  executed.rank = actor.plan->rank;
  executed.step = actor.done;
  executed.depth = actor.depth;
  if (length_of(*actor.plan, step) == kSignalLength) {
    for (size_t r = 0; r < actor.heard.size(); ++r) {
      if (actor.heard[r]) executed.heard.push_back(static_cast<int>(r));
    }
  } else {
    executed.value = parcel.value;
    for (const Operand& operand : operands) executed.operands.push_back(operand.value);
  }
  trace_->steps.push_back(std::move(executed));
}

// Operands have smaller numbers than what is folded of them.
void ValueRun::fill_values() const {
  std::vector<ValueTrace::Held>& values = trace_->values;
  values.resize(expressions_.size());
  for (Value v = 0; v < values.size(); ++v) {
    if (expressions_.is_leaf(v)) {
      values[v] = {{expressions_.rank_of(v)}, expressions_.block_of(v), false};
      continue;
    }
    values[v].finished = expressions_.finished(v);
    for (const Operand& operand : expressions_.operands(v)) {
      const ValueTrace::Held& inner = values[operand.value];
      values[v].block = inner.block;
      values[v].ranks.insert(values[v].ranks.end(), inner.ranks.begin(), inner.ranks.end());
    }
  }
}

// Why not all steps have run, or which blocks were sent and never received.
Failure ValueRun::stuck() const {
  for (const Actor& actor : actors_) {
    if (finished(actor)) continue;
    return here(actor) + "waits for ever for a slice from " + rank_name(waits_for(actor)->peer);
  }
  for (const Actor& actor : actors_) {
    for (size_t i = 0; i < actor.inbox.size(); ++i) {
      if (actor.inbox[i].empty()) continue;
      return rank_name(actor.plan->rank) + ": " + std::to_string(actor.inbox[i].size()) + " blocks from " +
             rank_name(actor.plan->peers[i]) + " are never received";
    }
  }
  return std::nullopt;
}

// Every rank's contribution once, scaled once, and the fold finished: `value` is walked as a tree, since a value used
// twice would count twice. Of a scan those of the first ranks, in their order; it has no operation that finishes, or
// that scales as it folds.
Failure ValueRun::check_folded(const Plan& plan, uint32_t block, int first, Value value) {
  const bool scans = first > 0;
  const std::string where = rank_name(plan.rank) + ": output " + std::to_string(block) + " ";
  if (!scans) {
    const auto [it, is_first] = agreed_.insert({block, {value, plan.rank}});
    if (!is_first) {
      if (it->second.first == value) return std::nullopt;
      return where + "is folded as " + expressions_.text(value) + ", on " + rank_name(it->second.second) + " as " +
             expressions_.text(it->second.first);
    }
    if (!expressions_.finished(expressions_.plain(value))) {
      return where + "is not finished: " + expressions_.text(value);
    }
  }
  std::vector<int> counts(plans_.size());
  std::vector<Operand> open(1, {value, Expressions::kUnscaled});
  size_t leaves = 0;
  while (!open.empty() && leaves <= plans_.size()) {
    const Operand operand{expressions_.plain(open.back().value), open.back().scaled_by};
    open.pop_back();
    if (expressions_.is_leaf(operand.value)) {
      if (scans && expressions_.rank_of(operand.value) != static_cast<int>(leaves)) {
        return where + "is not folded in the order of the ranks: " + expressions_.text(value);
      }
      ++leaves;
      if (operand.scaled_by == Expressions::kUnscaled && !(scans && scaling_ == Scaling::kAtFold)) {
        return where + "has a contribution that was not scaled: " + expressions_.text(operand.value);
      }
      if (expressions_.block_of(operand.value) != block) {
        return where + "has a contribution to another block: " + expressions_.text(operand.value);
      }
      ++counts[static_cast<size_t>(expressions_.rank_of(operand.value))];
    }
    const std::span<const Operand> inner = expressions_.operands(operand.value);
    open.insert(open.end(), inner.rbegin(), inner.rend());  // the first is the next
  }
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] != (scans && r >= static_cast<size_t>(first) ? 0 : 1)) {
      return where + "has the contribution of " + rank_name(static_cast<int>(r)) + " " + std::to_string(counts[r]) +
             " times: " + expressions_.text(value);
    }
  }
  return std::nullopt;
}

Failure ValueRun::check_outputs() {
  for (Actor& actor : actors_) {
    for (actor.round = 0; actor.round < rounds_; ++actor.round) {
      for (const Promise& promise : promises(*actor.plan)) {
        if (Failure failure = check_output(actor, promise)) return failure;
      }
    }
  }
  return std::nullopt;
}

// A copy must be the very contribution; coded, the value that every receiver decodes.
Failure ValueRun::check_output(const Actor& actor, const Promise& promise) {
  const Plan& plan = *actor.plan;
  const Value value = actor.memory[memory_index(actor, {Space::kOutput, 0, 0, promise.block})];
  const std::string where = rank_name(plan.rank) + ": output " + std::to_string(promise.block) + " ";
  if (value == kNoValue) return where + "is never written";
  if (promise.folded) return check_folded(plan, actor.round * plan.blocks + promise.block, promise.first, value);
  Value wanted = expressions_.leaf(promise.source, actor.round * plan.blocks + promise.source_block);
  if (wire_ == Wire::kCoded && plans_.size() > 1) {
    wanted = expressions_.narrow(expressions_.decode(expressions_.encode(wanted)));
  }
  if (value == wanted) return std::nullopt;
  return where + "holds " + expressions_.text(value) + ", not " + expressions_.text(wanted);
}

// A barrier: each rank must have heard from all, directly or through others.
Failure ValueRun::check_heard() const {
  for (const Actor& actor : actors_) {
    for (size_t r = 0; r < actors_.size(); ++r) {
      if (!actor.heard[r]) {
        return rank_name(actor.plan->rank) + " leaves the barrier without having heard from " +
               rank_name(static_cast<int>(r));
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> check_values(std::span<const Plan> plans, Buffers buffers, Scaling scaling, Wire wire) {
  ValueRun run(plans, buffers, scaling, wire);
  if (Failure failure = run.run()) return failure;
  return run.check_outputs();
}

std::optional<std::string> check_barrier(std::span<const Plan> plans) {
  ValueRun run(plans, Buffers::kOutOfPlace, Scaling::kAtFold);
  if (Failure failure = run.run()) return failure;
  return run.check_heard();
}

ValueTrace trace_values(std::span<const Plan> plans) {
  ValueRun run(plans, Buffers::kOutOfPlace, Scaling::kAtFold);
  ValueTrace trace;
  run.record(&trace);
  if (Failure failure = run.run()) throw Exception(ErrorCode::kInternal, *failure);
  run.fill_values();
  return trace;
}

}  // namespace rondo
