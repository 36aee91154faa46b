#include "ring/engine/lane_run.h"

#include <algorithm>
#include <cstring>

#include "kernels/stream_copy.h"
#include "ring/base/check.h"
#include "ring/base/hash.h"

namespace rondo {
namespace {

// Passes without progress after which a landing that cannot go to the caller's memory yet takes a slot instead (one
// copy more). Waiting for the memory is the better choice while things move; waiting for ever would break the promise
// of depth: read ahead, whatever the program waits for.
constexpr uint32_t kIdlePassesBeforeSlot = 64;

bool in_memory(const Ref& ref) { return ref.space != Space::kMailbox; }
bool is_staging(const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kStaging) != 0; }

// What is folded at a time and then streamed: stays in a first-level cache beside its sources.
constexpr size_t kStreamedPieceBytes = 8 * 1024;

}  // namespace

void LaneRun::SendQueue::reset(size_t capacity) {
  items_.resize(std::max<size_t>(capacity, 1));
  first_ = last_ = 0;
}

void LaneRun::SendQueue::push(const Item& item) {
  RONDO_CHECK(last_ - first_ < items_.size(), "more slices pending than the links hold");
  items_[last_++ % items_.size()] = item;
}

void LaneRun::start(const Binding& binding, uint32_t lane, std::span<Link* const> links) {
  const Plan& plan = *binding.plan;
  binding_ = binding;
  lane_ = lane;
  ports_.resize(links.size());
  port_index_.resize(static_cast<size_t>(plan.world));
  for (size_t i = 0; i < links.size(); ++i) {
    port_index_[static_cast<size_t>(plan.peers[i])] = static_cast<uint32_t>(i);
    ports_[i].link = links[i];
    ports_[i].sending.reset(links[i]->depth());
  }

  const Lane& program = plan.lanes[lane];
  steps_.resize(program.count);
  rounds_ = 0;
  meetings_a_round_ = 0;
  for (uint32_t i = 0; i < program.count; ++i) bind_step(plan.steps[program.first + i], steps_[i]);
  if (binding_.windows != nullptr) bind_rounds(binding_.windows->largest_block);
  failed_pull_ = -1;
  failed_meeting_ = -1;
  if (plan.scratch_slots > 0) {
    scratch_.resize(size_t{plan.scratch_slots} * plan.chunks * binding_.cut.chunk() * binding_.element_bytes);
  }
  begin();
}

void LaneRun::start_again(const Binding& binding) {
  binding_ = binding;
  for (Port& port : ports_) port.sending.reset(port.link->depth());
  for (BoundStep& step : steps_) step.fingerprint = binding.fingerprint;
  begin();
}

void LaneRun::begin() {
  posted_ = first_place();
  posted_source_ = 0;
  combined_ = first_place();
  round_number_ = 0;
  sent_ = 0;
  idle_passes_ = 0;
  if (meetings_a_round_ > 0) {
    uint64_t& meetings = binding_.windows->noticeboard->meetings[lane_];
    meetings_ = meetings;
    meetings += rounds_ * meetings_a_round_;
  }
  enter_step();
}

// Whoever waits in each round must count as many rounds as whoever signals, though their steps differ.
void LaneRun::bind_rounds(uint64_t count) { rounds_ = std::max(rounds_, binding_.cut.rounds(count)); }

void LaneRun::bind_step(const Step& step, BoundStep& bound) {
  const Ref* refs = binding_.plan->refs.data() + step.first;
  bound = BoundStep{};
  bound.sources = refs;
  bound.targets = refs + step.sources;
  bound.source_count = step.sources;
  bound.target_count = step.targets;
  bound.after = step.after;
  bound.finish = (step.flags & kFinish) != 0;
  // Windows are as long as the caller's buffer or the scratch memory beside them.
  const Ref* memory = std::find_if(refs, refs + step.sources + step.targets,
                                   [](const Ref& ref) { return in_memory(ref) && ref.space != Space::kWindow; });
  bound.signal = memory == refs + step.sources + step.targets;
  bound.each_round = (step.flags & kEachRound) != 0;
  bound.fingerprint = binding_.fingerprint;
  bound.meeting = step.meeting;
  meetings_a_round_ = std::max(meetings_a_round_, step.meeting);
  if (bound.signal) {
    rounds_ = std::max<uint64_t>(rounds_, 1);
    return;
  }
  const uint32_t block = memory->chunk % binding_.plan->chunks;
  const Extent input = binding_.blocks->input[block];
  const Extent output = binding_.blocks->output[block];
  const uint64_t count = memory->space == Space::kInput    ? input.count
                         : memory->space == Space::kOutput ? output.count
                                                           : std::max(input.count, output.count);
  bound.share = binding_.cut.lane_share(count, lane_);
  rounds_ = std::max(rounds_, binding_.cut.rounds(count));
  if (binding_.pairwise && !std::all_of(refs, refs + step.sources + step.targets, in_memory)) {
    bound.pairwise = true;
    bound.fingerprint = Hash64().add(binding_.fingerprint).add(count).value();
    rounds_ = std::max<uint64_t>(rounds_, 1);
  }
  for (uint32_t i = 0; i < step.sources; ++i) {
    if ((refs[i].flags & kScale) != 0 && combine_scales(binding_.combine)) bound.scaled |= uint64_t{1} << i;
  }
  bound.finish = bound.finish && combine_finishes(binding_.combine);
  bound.copies = step.sources == 1 && bound.scaled == 0 && !bound.finish;
  for (uint32_t i = 0; i < step.targets; ++i) bound.scratch_target |= bound.targets[i].space == Space::kScratch;
}

LaneRun::Cursor LaneRun::first_place() const {
  Cursor cursor;
  cursor.at_end = steps_.empty() || rounds_ == 0;
  if (!cursor.at_end) settle(cursor);
  return cursor;
}

// Skips steps that have no slice in this round, into the next rounds and to the end.
void LaneRun::settle(Cursor& cursor) const {
  while (true) {
    if (cursor.step == steps_.size()) {
      cursor.step = 0;
      if (++cursor.round >= rounds_) {
        cursor.at_end = true;
        return;
      }
    }
    const BoundStep& step = steps_[cursor.step];
    if (step.signal) {
      cursor.slices = cursor.round == 0 || step.each_round ? 1 : 0;
    } else {
      const uint64_t chunk = binding_.cut.chunk();
      const uint64_t begin = std::min(step.share.count, cursor.round * chunk);
      cursor.slices = binding_.cut.slices(std::min(step.share.count - begin, chunk));
      if (step.pairwise && cursor.round == 0) cursor.slices = std::max<uint32_t>(cursor.slices, 1);
    }
    if (cursor.slices > 0) return;
    ++cursor.step;
  }
}

void LaneRun::advance(Cursor& cursor) const {
  ++cursor.number;
  if (++cursor.slice < cursor.slices) return;
  cursor.slice = 0;
  ++cursor.step;
  settle(cursor);
}

// combined_ is at the first slice of a step.
void LaneRun::enter_step() {
  if (!combined_.at_end) steps_[combined_.step].first_number = combined_.number;
}

LaneRun::Span LaneRun::span_of(const Cursor& cursor) const {
  const BoundStep& step = steps_[cursor.step];
  if (step.signal) return {0, 0};
  const Cut& cut = binding_.cut;
  const uint64_t begin = cursor.round * cut.chunk() + cursor.slice * cut.slice;
  const uint64_t end = std::min(step.share.count, (cursor.round + 1) * cut.chunk());
  return {step.share.offset + begin, std::min(cut.slice, end - begin)};
}

SliceTag LaneRun::tag_of(const Cursor& cursor) const {
  return {binding_.sequence, steps_[cursor.step].fingerprint,
          static_cast<uint32_t>(span_of(cursor).count * binding_.element_bytes)};
}

std::byte* LaneRun::address(const Ref& ref, const Cursor& cursor, const Span& span) const {
  switch (ref.space) {
    case Space::kInput:  // only ever read
      return const_cast<std::byte*>(binding_.input) +
             (binding_.blocks->input[ref.chunk].offset + span.begin) * binding_.element_bytes;
    case Space::kOutput:
      return binding_.output + (binding_.blocks->output[ref.chunk].offset + span.begin) * binding_.element_bytes;
    case Space::kScratch:
      return const_cast<std::byte*>(scratch_.data()) +
             (ref.chunk * binding_.cut.chunk() + cursor.slice * binding_.cut.slice) * binding_.element_bytes;
    case Space::kWindow:
      return window_address(ref, cursor, span);
    case Space::kMailbox:
      break;
  }
  RONDO_CHECK(false, "a step's memory is neither input, output nor scratch");
  return nullptr;
}

// nullptr: not mapped here.
std::byte* LaneRun::window_address(const Ref& ref, const Cursor& cursor, const Span& span) const {
  const WindowBinding& windows = *binding_.windows;
  const PeerMemory& peer = windows.ranks[ref.peer];
  if ((ref.flags & kStaging) != 0) {
    const uint64_t chunk = uint64_t{lane_} * binding_.plan->chunks + ref.chunk;
    return peer.staging + (chunk * binding_.cut.chunk() + cursor.slice * binding_.cut.slice) * binding_.element_bytes;
  }
  if ((ref.flags & kPeerOutput) != 0) {
    if (peer.output == nullptr) return nullptr;
    return peer.output + (windows.output_blocks[ref.chunk].offset + span.begin) * binding_.element_bytes;
  }
  if (peer.input == nullptr) return nullptr;
  return peer.input + (windows.input_blocks[ref.chunk].offset + span.begin) * binding_.element_bytes;
}

bool LaneRun::pull(const Ref& ref, const Span& span, std::byte* to) {
  const WindowBinding& windows = *binding_.windows;
  const PeerMemory& peer = windows.ranks[ref.peer];
  const bool output = (ref.flags & kPeerOutput) != 0;
  const Extent& block = (output ? windows.output_blocks : windows.input_blocks)[ref.chunk];
  const uint64_t address =
      (output ? peer.output_address : peer.input_address) + (block.offset + span.begin) * binding_.element_bytes;
  if (windows.memory->pull(peer.world_rank, address, to, span.count * binding_.element_bytes)) return true;
  failed_pull_ = ref.peer;
  return false;
}

// Whether the slice at `cursor` may write its targets in memory: whoever reads the same slice of the same memory before
// it (step `after`) has been combined, and the links have sent it. Scratch of the round before is free when that round
// is sent.
bool LaneRun::may_write(const BoundStep& step, const Cursor& cursor) const {
  if (cursor.round != combined_.round) return step.after == kNoStep && !step.scratch_target;
  if (step.scratch_target && sent_ < round_number_) return false;
  if (step.after == kNoStep) return true;
  if (combined_.step < step.after) return false;
  return sent_ > steps_[step.after].first_number + cursor.slice;
}

// The caller's memory for a slice that is stored as it comes; nullptr for one that is folded.
std::byte* LaneRun::landing_for(const BoundStep& step, const Cursor& cursor) const {
  if (!step.copies) return nullptr;
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (in_memory(step.targets[i])) return address(step.targets[i], cursor, span_of(cursor));
  }
  return nullptr;
}

bool LaneRun::post_landing(const Ref& ref, Landing wish) {
  Link& link = link_to(ref);
  if (!link.can_post()) return false;
  const BoundStep& step = steps_[posted_.step];
  std::byte* landing = landing_for(step, posted_);
  if (landing != nullptr && !may_write(step, posted_)) {
    if (wish == Landing::kWait && link.unfilled() > 0 && idle_passes_ < kIdlePassesBeforeSlot) return false;
    landing = nullptr;
  }
  link.post(tag_of(posted_), landing);
  return true;
}

bool LaneRun::post(Landing landing) {
  bool moved = false;
  while (!posted_.at_end) {
    const BoundStep& step = steps_[posted_.step];
    if (step.meeting != 0) posted_source_ = step.source_count;
    for (; posted_source_ < step.source_count; ++posted_source_) {
      const Ref& ref = step.sources[posted_source_];
      if (in_memory(ref)) continue;
      if (!post_landing(ref, landing)) return moved;
      moved = true;
    }
    posted_source_ = 0;
    advance(posted_);
  }
  return moved;
}

bool LaneRun::ready(const BoundStep& step) {
  if (step.meeting != 0) return all_arrived(step);
  bool writes = false;
  for (uint32_t i = 0; i < step.source_count; ++i) {
    if (!in_memory(step.sources[i]) && link_to(step.sources[i]).arrived() == nullptr) return false;
  }
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (in_memory(step.targets[i])) {
      writes = true;
    } else if (!link_to(step.targets[i]).can_send()) {
      return false;
    }
  }
  return !writes || may_write(step, combined_);
}

bool LaneRun::combine_one() {
  if (combined_.at_end || combined_.number == posted_.number || failed_pull_ >= 0 || failed_meeting_ >= 0) return false;
  const BoundStep& step = steps_[combined_.step];
  if (!ready(step)) return false;
  const Span span = span_of(combined_);
  if (step.signal) {
    send_signals(step);
  } else if (!(step.copies ? move_bytes(step, span) : fold(step, span))) {
    return false;
  }
  for (uint32_t i = 0; i < step.source_count && step.meeting == 0; ++i) {
    if (!in_memory(step.sources[i])) link_to(step.sources[i]).release();
  }
  const uint64_t round = combined_.round;
  advance(combined_);
  if (combined_.round != round) round_number_ = combined_.number;
  if (combined_.slice == 0) enter_step();
  return true;
}

// Every rank has one number for all: whom this rank does not signal does not wait for it in this meeting. What was
// written before is seen by whoever sees the number.
void LaneRun::arrive(const BoundStep& step) {
  Noticeboard& noticeboard = *binding_.windows->noticeboard;
  noticeboard.board.arrive(lane_, meeting_number(step));
  for (uint32_t i = 0; i < step.target_count; ++i) noticeboard.ring(step.targets[i].peer);
}

// Cost while some have not: one load.
bool LaneRun::all_arrived(const BoundStep& step) {
  if (step.source_count == 0) return true;
  const Board& board = binding_.windows->noticeboard->board;
  const uint64_t number = meeting_number(step);
  for (uint32_t i = 0; i < step.source_count; ++i) {
    const uint64_t theirs = board.arrived(step.sources[i].peer, lane_);
    if (theirs < number) return false;
    // Nobody gets past this operation without this rank.
    if (theirs > meetings_ + rounds_ * meetings_a_round_) {
      failed_meeting_ = step.sources[i].peer;
      return false;
    }
  }
  return true;
}

void LaneRun::send_signals(const BoundStep& step) {
  if (step.meeting != 0) {
    if (step.target_count > 0) arrive(step);
    return;
  }
  for (uint32_t i = 0; i < step.target_count; ++i) hand_over(port_of(step.targets[i]), nullptr);
}

// Sends memory that stays as it is until the link has sent it (a target in memory, or the caller's input).
void LaneRun::hand_over(Port& port, const std::byte* memory) {
  keep_until_sent(port, port.link->send(tag_of(combined_), memory));
}

void LaneRun::hand_over_reserved(Port& port) { keep_until_sent(port, port.link->commit(tag_of(combined_))); }

// A link over memory sends at once and has room again as soon as the peer has read, in the middle of a pass: what is
// sent by then must not fill the queue.
void LaneRun::keep_until_sent(Port& port, uint64_t sent) {
  drop_sent(port);
  port.sending.push({combined_.number, sent});
}

void LaneRun::drop_sent(Port& port) {
  const uint64_t sent = port.link->sent();
  while (!port.sending.empty() && port.sending.front().sent <= sent) port.sending.pop();
}

// One source, stored and forwarded as it is. Cost beside the transfer: none where the slice landed in its place
// (all_gather, the second half of all_reduce), one copy where it did not, and one where it is forwarded without being
// stored.
bool LaneRun::move_bytes(const BoundStep& step, const Span& span) {
  const Ref& source = step.sources[0];
  const size_t bytes = span.count * binding_.element_bytes;
  const bool from_memory = in_memory(source);
  const std::byte* from = from_memory ? address(source, combined_, span) : link_to(source).arrived();
  if (from == nullptr) {  // a window that is not mapped
    std::byte* to = address(step.targets[0], combined_, span);
    if (!pull(source, span, to)) return false;
    from = to;
  }
  const std::byte* stays = from_memory ? from : nullptr;
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (!in_memory(step.targets[i])) continue;
    std::byte* to = address(step.targets[i], combined_, span);
    if (is_staging(step.targets[i])) {
      binding_.windows->noticeboard->stages.copy(to, from, bytes);
    } else if (binding_.streams && source.space == Space::kWindow && to != from) {
      stream_copy(to, from, bytes);
    } else if (to != from) {
      std::memcpy(to, from, bytes);
    }
    stays = to;
  }
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (in_memory(step.targets[i])) continue;
    Port& port = port_of(step.targets[i]);
    if (stays != nullptr) {
      hand_over(port, stays);
    } else {
      std::memcpy(port.link->reserve(static_cast<uint32_t>(bytes)), from, bytes);
      hand_over_reserved(port);
    }
  }
  return true;
}

// Cost: one pass over the sources, in cache if the slice has just been received (kernels/combine.h); no copy beside it.
// A source that is not mapped is copied into memory that stays in cache first (measured: docs/plans.md, "Windows").
bool LaneRun::fold(const BoundStep& step, const Span& span) {
  const void* sources[kMaxCombineSources];
  void* targets[kMaxCombineTargets];
  CombineMove move;
  for (uint32_t i = 0; i < step.source_count; ++i) {
    const Ref& ref = step.sources[i];
    sources[i] = in_memory(ref) ? address(ref, combined_, span) : link_to(ref).arrived();
    if (sources[i] != nullptr) continue;
    const size_t slice = binding_.cut.slice * binding_.element_bytes;
    if (pulled_.size() < slice * step.source_count) pulled_.resize(slice * step.source_count);
    std::byte* to = pulled_.data() + i * slice;
    if (!pull(ref, span, to)) return false;
    sources[i] = to;
  }
  const size_t bytes = span.count * binding_.element_bytes;
  std::byte* stored = nullptr;
  std::byte* staged = nullptr;
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (!in_memory(step.targets[i])) continue;
    std::byte* to = address(step.targets[i], combined_, span);
    if (is_staging(step.targets[i]) && binding_.windows->noticeboard->stages.streams(bytes)) {
      staged = to;
      continue;
    }
    stored = to;
    targets[move.target_count++] = stored;
  }
  // Mailboxes are written in place unless the value is stored anyway: then it is sent from there.
  for (uint32_t i = 0; i < step.target_count && stored == nullptr && staged == nullptr; ++i) {
    targets[move.target_count++] = link_to(step.targets[i]).reserve(static_cast<uint32_t>(bytes));
  }
  move.sources = sources;
  move.targets = targets;
  move.source_count = step.source_count;
  move.scaled = step.scaled;
  move.finish = step.finish;
  if (staged != nullptr) {
    RONDO_CHECK(move.target_count <= 1, "a fold into staging memory has more than one other target");
    fold_and_stream(move, span, staged);
    return true;
  }
  combine(binding_.combine, move, span.count);
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (in_memory(step.targets[i])) continue;
    if (stored != nullptr) {
      hand_over(port_of(step.targets[i]), stored);
    } else {
      hand_over_reserved(port_of(step.targets[i]));
    }
  }
  return true;
}

// A fold whose value goes to staging memory past the caches, beside at most one other target. Piece by piece: folded in
// cache, and copied from there.
void LaneRun::fold_and_stream(const CombineMove& move, const Span& span, std::byte* staged) {
  alignas(64) std::byte kept[kStreamedPieceBytes];
  const size_t element = binding_.element_bytes;
  const uint64_t piece = kStreamedPieceBytes / element;
  const void* sources[kMaxCombineSources];
  void* target = kept;
  CombineMove part = move;
  part.sources = sources;
  part.targets = &target;
  part.target_count = 1;
  for (uint64_t at = 0; at < span.count; at += piece) {
    const uint64_t count = std::min(piece, span.count - at);
    for (uint32_t i = 0; i < move.source_count; ++i) {
      sources[i] = static_cast<const std::byte*>(move.sources[i]) + at * element;
    }
    if (move.target_count > 0) target = static_cast<std::byte*>(move.targets[0]) + at * element;
    combine(binding_.combine, part, count);
    stream_copy(staged + at * element, target, count * element);
  }
}

void LaneRun::retire() {
  sent_ = combined_.number;
  for (Port& port : ports_) {
    drop_sent(port);
    if (!port.sending.empty()) sent_ = std::min(sent_, port.sending.front().number);
  }
}

bool LaneRun::pump() {
  bool moved = false;
  for (Port& port : ports_) moved |= port.link->pump();
  return moved;
}

bool LaneRun::progress(Landing landing) {
  bool moved = pump();
  retire();
  moved |= post(landing);
  bool combined = false;
  while (combine_one()) {
    combined = true;
    post(landing);
  }
  if (combined) {
    moved = true;
    pump();
    retire();
  }
  idle_passes_ = moved ? 0 : idle_passes_ + 1;
  return moved;
}

int LaneRun::failed_link() const {
  for (size_t i = 0; i < ports_.size(); ++i) {
    if (ports_[i].link->error() != nullptr) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace rondo
