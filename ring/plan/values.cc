#include "ring/plan/values.h"

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "ring/plan/describe.h"
#include "ring/plan/expression.h"
#include "ring/plan/goal.h"
#include "ring/plan/structure.h"

namespace rondo {
namespace {

using Failure = std::optional<std::string>;
using Operand = Expressions::Operand;

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

// A chunk on its way.
struct Parcel {
  uint32_t length = kSignalLength;
  Value value = kNoValue;
  std::vector<bool> heard;  // barrier: of whom the sender had heard
};

// One rank: its memory and how far it is.
struct Actor {
  const Plan* plan = nullptr;
  uint32_t done = 0;                      // steps
  std::vector<Value> memory;              // inputs, outputs (in place: the inputs), scratch
  std::vector<std::deque<Parcel>> inbox;  // by index in plan->peers
  std::vector<bool> heard;
};

class ValueRun {
 public:
  ValueRun(std::span<const Plan> plans, uint32_t lane, Buffers buffers, Scaling scaling);
  Failure run();
  Failure check_outputs();
  Failure check_heard() const;

 private:
  uint32_t memory_index(const Plan& plan, const Ref& ref) const;
  const Step& next_step(const Actor& actor) const;
  const Ref* waits_for(const Actor& actor) const;  // a mailbox that is empty; nullptr: the next step can run
  Failure advance(Actor& actor);
  Failure execute(Actor& actor);
  Failure load(Actor& actor, const Step& step, const Ref& ref, Operand& operand);
  Failure check_operand(const Actor& actor, const Ref& ref, const Operand& operand) const;
  Failure fold(Actor& actor, const Step& step, std::span<const Operand> operands, Value& value);
  Failure check_folded(const Plan& plan, uint32_t block, Value value);
  Failure stuck() const;
  std::string here(const Actor& actor) const { return place_of(*actor.plan, lane_, actor.done) + ": "; }
  std::deque<Parcel>& inbox(Actor& actor, int from) const {
    const std::vector<int>& peers = actor.plan->peers;
    return actor.inbox[static_cast<size_t>(std::lower_bound(peers.begin(), peers.end(), from) - peers.begin())];
  }

  std::span<const Plan> plans_;
  uint32_t lane_;
  Buffers buffers_;
  Scaling scaling_;
  bool reduces_;
  Expressions expressions_;
  std::vector<Actor> actors_;
  std::vector<int> ready_;                            // ranks that may be able to move
  std::map<uint32_t, std::pair<Value, int>> agreed_;  // by block: the folded value, and the first rank that has it
};

ValueRun::ValueRun(std::span<const Plan> plans, uint32_t lane, Buffers buffers, Scaling scaling)
    : plans_(plans),
      lane_(lane),
      buffers_(buffers),
      scaling_(scaling),
      reduces_(collective_reduces(plans[0].collective)),
      actors_(plans.size()) {
  for (size_t r = 0; r < plans.size(); ++r) {
    const Plan& plan = plans[r];
    Actor& actor = actors_[r];
    actor.plan = &plan;
    actor.memory.assign(size_t{2 + plan.scratch_slots} * plan.chunks, kNoValue);
    for (uint32_t c = 0; c < plan.chunks; ++c) {
      if (holds_input(plan, c)) actor.memory[c] = expressions_.leaf(plan.rank, c);
    }
    actor.inbox.resize(plan.peers.size());
    actor.heard.assign(plans.size(), false);
    actor.heard[r] = true;
    ready_.push_back(static_cast<int>(r));
  }
}

uint32_t ValueRun::memory_index(const Plan& plan, const Ref& ref) const {
  if (ref.space == Space::kInput) return ref.chunk;
  if (ref.space == Space::kOutput) return ref.chunk + (buffers_ == Buffers::kInPlace ? 0 : plan.chunks);
  return ref.chunk + 2 * plan.chunks;
}

const Step& ValueRun::next_step(const Actor& actor) const {
  return actor.plan->steps[actor.plan->lanes[lane_].first + actor.done];
}

const Ref* ValueRun::waits_for(const Actor& actor) const {
  const Step& step = next_step(actor);
  for (uint32_t i = 0; i < step.sources; ++i) {
    const Ref& ref = actor.plan->refs[step.first + i];
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
  return stuck();
}

Failure ValueRun::advance(Actor& actor) {
  while (actor.done < actor.plan->lanes[lane_].count && waits_for(actor) == nullptr) {
    if (Failure failure = execute(actor)) return failure;
    ++actor.done;
  }
  return std::nullopt;
}

Failure ValueRun::load(Actor& actor, const Step& step, const Ref& ref, Operand& operand) {
  if (ref.space == Space::kMailbox) {
    std::deque<Parcel>& queue = inbox(actor, ref.peer);
    const Parcel parcel = std::move(queue.front());
    queue.pop_front();
    if (parcel.length != length_of(*actor.plan, step)) {
      return here(actor) + "expects another block than " + rank_name(ref.peer) + " sends (" +
             (parcel.length == kSignalLength ? "a signal" : expressions_.text(parcel.value)) + ")";
    }
    for (size_t r = 0; r < parcel.heard.size(); ++r) actor.heard[r] = actor.heard[r] || parcel.heard[r];
    operand.value = parcel.value;
  } else {
    operand.value = actor.memory[memory_index(*actor.plan, ref)];
    if (operand.value == kNoValue) return here(actor) + "reads " + describe(*actor.plan, ref) + " before it is written";
  }
  if ((ref.flags & kScale) != 0) {
    operand.scaled_by = scaling_ == Scaling::kAtSource ? actor.plan->rank : Expressions::kCommonFactor;
  }
  return check_operand(actor, ref, operand);
}

Failure ValueRun::check_operand(const Actor& actor, const Ref& ref, const Operand& operand) const {
  if (operand.scaled_by == Expressions::kUnscaled) return std::nullopt;
  const std::string what = describe(*actor.plan, ref);
  if (operand.value == kNoValue || !expressions_.is_leaf(operand.value)) {
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
    if (folds && expressions_.finished(operand.value)) {
      return here(actor) + "folds a value that is finished already: " + expressions_.text(operand.value);
    }
    if (operand.scaled_by != Expressions::kUnscaled && scaling_ == Scaling::kAtSource) {
      operand = {expressions_.fold({&operand, 1}, false), Expressions::kUnscaled};
    } else if (operand.scaled_by != Expressions::kUnscaled && !folds) {
      return here(actor) + "scales a contribution that it does not fold";
    } else if (folds && reduces_ && operand.scaled_by == Expressions::kUnscaled &&
               expressions_.is_leaf(operand.value)) {
      return here(actor) + "folds a contribution that was not scaled: " + expressions_.text(operand.value);
    }
  }
  value = expressions_.fold(list, finish);
  return std::nullopt;
}

Failure ValueRun::execute(Actor& actor) {
  const Plan& plan = *actor.plan;
  const Step& step = next_step(actor);
  std::vector<Operand> operands(step.sources);
  for (uint32_t i = 0; i < step.sources; ++i) {
    if (Failure failure = load(actor, step, plan.refs[step.first + i], operands[i])) return failure;
  }
  Parcel parcel;
  parcel.length = length_of(plan, step);
  if (parcel.length == kSignalLength) {
    parcel.heard = actor.heard;
  } else if (Failure failure = fold(actor, step, operands, parcel.value)) {
    return failure;
  }
  for (uint32_t i = 0; i < step.targets; ++i) {
    const Ref& ref = plan.refs[step.first + step.sources + i];
    if (ref.space == Space::kMailbox) {
      inbox(actors_[ref.peer], plan.rank).push_back(parcel);
      ready_.push_back(ref.peer);
    } else {
      actor.memory[memory_index(plan, ref)] = parcel.value;
    }
  }
  return std::nullopt;
}

Failure ValueRun::stuck() const {
  for (const Actor& actor : actors_) {
    if (actor.done == actor.plan->lanes[lane_].count) continue;
    return here(actor) + "waits for ever for a slice from " + rank_name(waits_for(actor)->peer);
  }
  for (const Actor& actor : actors_) {
    for (size_t i = 0; i < actor.inbox.size(); ++i) {
      if (actor.inbox[i].empty()) continue;
      return rank_name(actor.plan->rank) + ", lane " + std::to_string(lane_) + ": " +
             std::to_string(actor.inbox[i].size()) + " chunks from " + rank_name(actor.plan->peers[i]) +
             " are never received";
    }
  }
  return std::nullopt;
}

// Every rank's contribution once, scaled once, and the fold finished: `value` is walked as a tree, since a value used
// twice would count twice.
Failure ValueRun::check_folded(const Plan& plan, uint32_t block, Value value) {
  const auto [it, first] = agreed_.insert({block, {value, plan.rank}});
  const std::string where =
      rank_name(plan.rank) + ", lane " + std::to_string(lane_) + ": output " + std::to_string(block) + " ";
  if (!first) {
    if (it->second.first == value) return std::nullopt;
    return where + "is folded as " + expressions_.text(value) + ", on " + rank_name(it->second.second) + " as " +
           expressions_.text(it->second.first);
  }
  if (!expressions_.finished(value)) return where + "is not finished: " + expressions_.text(value);
  std::vector<int> counts(plans_.size());
  std::vector<Operand> open(1, {value, Expressions::kUnscaled});
  size_t leaves = 0;
  while (!open.empty() && leaves <= plans_.size()) {
    const Operand operand = open.back();
    open.pop_back();
    if (expressions_.is_leaf(operand.value)) {
      ++leaves;
      if (operand.scaled_by == Expressions::kUnscaled) {
        return where + "has a contribution that was not scaled: " + expressions_.text(operand.value);
      }
      if (expressions_.block_of(operand.value) != block) {
        return where + "has a contribution to another block: " + expressions_.text(operand.value);
      }
      ++counts[static_cast<size_t>(expressions_.rank_of(operand.value))];
    }
    for (const Operand& inner : expressions_.operands(operand.value)) open.push_back(inner);
  }
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] != 1) {
      return where + "has the contribution of " + rank_name(static_cast<int>(r)) + " " + std::to_string(counts[r]) +
             " times: " + expressions_.text(value);
    }
  }
  return std::nullopt;
}

Failure ValueRun::check_outputs() {
  for (const Actor& actor : actors_) {
    const Plan& plan = *actor.plan;
    for (const Promise& promise : promises(plan)) {
      const Value value = actor.memory[memory_index(plan, {Space::kOutput, 0, 0, promise.block})];
      const std::string where =
          rank_name(plan.rank) + ", lane " + std::to_string(lane_) + ": output " + std::to_string(promise.block) + " ";
      if (value == kNoValue) return where + "is never written";
      if (promise.folded) {
        if (Failure failure = check_folded(plan, promise.block, value)) return failure;
      } else if (value != expressions_.leaf(promise.source, promise.source_block)) {
        return where + "holds " + expressions_.text(value) + ", not " +
               expressions_.text(expressions_.leaf(promise.source, promise.source_block));
      }
    }
  }
  return std::nullopt;
}

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

std::optional<std::string> check_values(std::span<const Plan> plans, uint32_t lane, Buffers buffers, Scaling scaling) {
  ValueRun run(plans, lane, buffers, scaling);
  if (Failure failure = run.run()) return failure;
  return run.check_outputs();
}

std::optional<std::string> check_barrier(std::span<const Plan> plans) {
  ValueRun run(plans, 0, Buffers::kOutOfPlace, Scaling::kAtFold);
  if (Failure failure = run.run()) return failure;
  return run.check_heard();
}

}  // namespace rondo
