#include "ring/engine/run/plan_run.h"

#include <algorithm>

#include "ring/base/hash.h"

namespace rondo {
namespace {

// Idle passes after which a landing that may not go to the caller's memory yet takes a slot (one copy more).
// While things move, waiting for the memory is better. Waiting for ever would break the promise of depth
// (transport/link.h), and two ranks could wait for each other.
constexpr uint32_t kIdlePassesBeforeSlot = 64;

// The most slices of a pass: some 2 MiB, moved in less than a millisecond where nothing has to be waited for.
constexpr uint32_t kSlicesPerPass = 32;

}  // namespace

void PlanRun::start(const Binding& binding, std::span<Link* const> links) {
  const Plan& plan = *binding.plan;
  mover_.start(binding, links);
  walk_.start(plan, binding.slicing);
  const Step* step = plan.steps.data();
  for (BoundStep& bound : walk_.steps()) bind_step(*step++, bound);
  if (binding.windows != nullptr) walk_.need_rounds(binding.slicing.rounds(binding.windows->largest_block));
  begin();
}

void PlanRun::start_again(const RunStart& start) {
  mover_.start_again(start);
  begin();
}

// Barriers are numbered through all calls of the communicator: this call takes the next ones, on all ranks alike.
void PlanRun::begin() {
  posted_source_ = 0;
  idle_passes_ = 0;
  observer_.begin(binding().observed, binding().start.sequence);
  if (!walk_.has_barriers()) return walk_.begin();
  uint64_t& barriers = binding().windows->channel->barriers;
  walk_.begin(barriers);
  barriers = walk_.last_barrier();
}

// A step between two ranks that alone know a count gets a fingerprint with that count: if they differ, the
// first slice shows it.
void PlanRun::bind_step(const Step& step, BoundStep& bound) {
  bound.bind(binding(), step);
  if (bound.signal()) return;
  const Plan& plan = *binding().plan;
  const Blocks& blocks = *binding().blocks;
  const uint32_t block = bound.memory->block % plan.blocks;
  const uint64_t input = blocks.input[block].count, output = blocks.output[block].count;
  const uint64_t count = bound.memory->space == Space::kInput    ? input
                         : bound.memory->space == Space::kOutput ? output
                                                                 : std::max(input, output);
  const std::span<const Ref> refs = refs_of(plan, step);
  if (binding().pairwise && std::any_of(refs.begin(), refs.end(), is_mailbox)) {
    bound.counted = true;
    bound.fingerprint = Hash64().add(binding().start.fingerprint).add(count).value();
  }
  walk_.set_block(bound, count);
}

// The slice at a cursor, with the tag that both ends of a link must give it.
Slice PlanRun::slice_at(const Cursor& cursor) const {
  const Extent elements = walk_.span_of(cursor);
  const size_t bytes = elements.count * binding().element_bytes;
  const WireFormat format = binding().start.buffers.wire.format;
  const size_t travels =
      format == WireFormat::kNone ? bytes : wire_slice_bytes(format, binding().element_bytes, elements.count);
  const BoundStep& step = walk_.step_at(cursor);
  const SliceTag tag{binding().start.sequence, step.counted ? step.fingerprint : binding().start.fingerprint,
                     static_cast<uint32_t>(travels), format == WireFormat::kPacked};
  return {cursor.number, cursor.slice, elements, bytes, tag};
}

// Where a slice lands that is only stored: the caller's memory, without a copy. nullptr: it is folded, or
// decoded, and lands in a slot of the link.
std::byte* PlanRun::landing_for(const BoundStep& step, const Slice& slice) const {
  if (!step.copies || binding().start.buffers.wire.format != WireFormat::kNone) return nullptr;
  const auto found = std::find_if_not(step.targets.begin(), step.targets.end(), is_mailbox);
  return found == step.targets.end() ? nullptr : mover_.address(*found, slice);
}

// Posts the landing of one source. False: the link takes no more now, or the memory may not be written yet.
bool PlanRun::post_landing(const Ref& ref, Pass pass) {
  Link& link = mover_.link(ref);
  if (!link.can_post()) return false;
  const Cursor& posted = walk_.posted();
  const Slice slice = slice_at(posted);
  std::byte* landing = landing_for(walk_.step_at(posted), slice);
  if (landing != nullptr && !walk_.may_write(posted)) {
    if (pass == Pass::kPolling && link.unfilled() > 0 && idle_passes_ < kIdlePassesBeforeSlot) return false;
    landing = nullptr;
  }
  link.post(slice.tag, landing);
  return true;
}

// Posts as far ahead as the links allow. posted_source_ is where a step was left when one of its links was
// full.
bool PlanRun::post(Pass pass) {
  bool moved = false;
  while (!walk_.posted().at_end) {
    const BoundStep& step = walk_.step_at(walk_.posted());
    if (step.barrier != 0) posted_source_ = static_cast<uint32_t>(step.sources.size());
    for (; posted_source_ < step.sources.size(); ++posted_source_) {
      const Ref& ref = step.sources[posted_source_];
      if (!is_mailbox(ref)) continue;
      if (!post_landing(ref, pass)) return moved;
      moved = true;
    }
    posted_source_ = 0;
    walk_.pass_posted();
  }
  return moved;
}

// Whether the next slice can be combined: its sources have arrived, its outgoing links have room, and its
// memory may be written.
bool PlanRun::ready(const BoundStep& step) {
  if (step.barrier != 0) return all_arrived(step);
  for (const Ref& ref : step.sources) {
    if (!is_mailbox(ref) || mover_.link(ref).arrived() != nullptr) continue;
    observer_.awaits(ref.peer);
    return false;
  }
  for (const Ref& ref : step.targets) {
    if (!is_mailbox(ref) || mover_.link(ref).can_send()) continue;
    observer_.awaits(ref.peer);
    return false;
  }
  observer_.awaits(-1);
  return walk_.may_write(walk_.combined());
}

void PlanRun::pass_observed(const BoundStep& step, size_t bytes) {
  const uint32_t of = walk_.combined().step;
  const uint64_t round = walk_.combined().round;
  walk_.pass_combined();
  const Cursor& next = walk_.combined();
  observer_.moved(step.sources, step.targets, bytes, next.at_end || next.step != of || next.round != round);
  observer_.at(next.step, next.round);
}

// Combines the next slice, releases its landings and passes on. False: it cannot yet, or never will
// (failure()).
bool PlanRun::combine_one() {
  if (!walk_.may_combine() || mover_.failed()) return false;
  const BoundStep& step = walk_.step_at(walk_.combined());
  if (!ready(step)) return false;
  if (step.barrier != 0) {
    if (!step.targets.empty()) arrive(step);
    pass_combined(step, 0);
    return true;
  }
  Slice slice = slice_at(walk_.combined());
  if (step.signal()) {
    mover_.signal(step, slice);
  } else if (!mover_.move(step, slice)) {
    return false;
  }
  for (const Ref& ref : step.sources) {
    if (is_mailbox(ref)) mover_.link(ref).release();
  }
  pass_combined(step, slice.tag.bytes);
  return true;
}

// Arrives at a barrier. Each rank has one number for all others, so a rank that is not signalled by this one
// does not wait for it here. The store releases what was written before: a rank that sees the number sees that.
void PlanRun::arrive(const BoundStep& step) {
  IslandChannel& channel = *binding().windows->channel;
  channel.board.arrive(walk_.barrier_number(walk_.combined()));
  for (const Ref& ref : step.targets) channel.ring(ref.peer);
}

// Whether all ranks that this step waits for have arrived. Costs one load while the first of them has not.
bool PlanRun::all_arrived(const BoundStep& step) {
  const PostBoard& board = binding().windows->channel->board;
  const uint64_t number = walk_.barrier_number(walk_.combined());
  for (const Ref& ref : step.sources) {
    const uint64_t theirs = board.arrived(ref.peer);
    if (theirs < number) {
      observer_.awaits(ref.peer);
      return false;
    }
    // No rank gets past this operation without this rank.
    if (theirs > walk_.last_barrier()) {
      mover_.fail({RunFailure::Kind::kCorrupt, ref.peer, nullptr, 0, "an arrival at a barrier that cannot be"});
      return false;
    }
  }
  return true;
}

// The order of a pass: pump what the links hold, retire what they have sent, post landings, combine slices and
// post behind each, and pump again what was combined. A landing that is posted early lets the peer's next slice
// come in place.
bool PlanRun::progress(Pass pass) {
  bool moved = pump();
  retire();
  moved |= post(pass);
  uint32_t combined = 0;
  while (combined < kSlicesPerPass && combine_one()) {
    ++combined;
    post(pass);
  }
  if (combined > 0) {
    moved = true;
    pump();
    retire();
  }
  if (observer_.on()) {
    if (walk_.done()) {
      observer_.end();
    } else if (combined == 0) {
      observer_.idle();
    }
  }
  idle_passes_ = moved ? 0 : idle_passes_ + 1;
  return moved;
}

}  // namespace rondo
