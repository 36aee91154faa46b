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

// Slices combined in a pass: some 2 MiB, moved in less than a millisecond, where nothing has to be waited for.
constexpr uint32_t kSlicesPerPass = 32;

bool in_memory(const Ref& ref) { return ref.space != Space::kMailbox; }
bool is_staging(const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kStaging) != 0; }
bool is_peers_buffer(const Ref& ref) { return ref.space == Space::kWindow && (ref.flags & kStaging) == 0; }

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

  walk_.start(plan, lane, binding_.cut, lane);
  const Step* step = plan.steps.data() + plan.lanes[lane].first;
  for (BoundStep& bound : walk_.steps()) bind_step(*step++, bound);
  if (binding_.windows != nullptr) walk_.need_rounds(binding_.cut.rounds(binding_.windows->largest_block));
  if (plan.scratch_slots > 0) {
    scratch_.resize(size_t{plan.scratch_slots} * plan.chunks * binding_.cut.chunk() * binding_.element_bytes);
  }
  begin();
}

void LaneRun::start_again(const Binding& binding) {
  binding_ = binding;
  for (Port& port : ports_) port.sending.reset(port.link->depth());
  for (BoundStep& step : walk_.steps()) step.fingerprint = binding.fingerprint;
  begin();
}

void LaneRun::begin() {
  posted_source_ = 0;
  idle_passes_ = 0;
  failed_pull_ = failed_meeting_ = closed_owner_ = -1;
  if (!walk_.has_barriers()) return walk_.begin();
  uint64_t& meetings = binding_.windows->noticeboard->meetings[lane_];
  walk_.begin(meetings);
  meetings = walk_.last_barrier();
}

void LaneRun::bind_step(const Step& step, BoundStep& bound) {
  const Ref* refs = binding_.plan->refs.data() + step.first;
  bound.sources = refs;
  bound.targets = refs + step.sources;
  bound.source_count = step.sources;
  bound.target_count = step.targets;
  bound.finish = (step.flags & kFinish) != 0;
  bound.fingerprint = binding_.fingerprint;
  if (bound.signal()) return;
  const Ref* memory = bound.memory;
  const uint32_t block = memory->chunk % binding_.plan->chunks;
  const Extent input = binding_.blocks->input[block];
  const Extent output = binding_.blocks->output[block];
  const uint64_t count = memory->space == Space::kInput    ? input.count
                         : memory->space == Space::kOutput ? output.count
                                                           : std::max(input.count, output.count);
  if (binding_.pairwise && !std::all_of(refs, refs + step.sources + step.targets, in_memory)) {
    bound.counted = true;
    bound.fingerprint = Hash64().add(binding_.fingerprint).add(count).value();
  }
  walk_.set_block(bound, count);
  for (uint32_t i = 0; i < step.sources; ++i) {
    if ((refs[i].flags & kScale) != 0 && combine_scales(binding_.combine)) bound.scaled |= uint64_t{1} << i;
  }
  bound.finish = bound.finish && combine_finishes(binding_.combine);
  bound.copies = step.sources == 1 && bound.scaled == 0 && !bound.finish;
  bound.peers_buffers = std::any_of(refs, refs + step.sources + step.targets, is_peers_buffer);
}

SliceTag LaneRun::tag_of(const Cursor& cursor) const {
  return {binding_.sequence, walk_.step_at(cursor).fingerprint,
          static_cast<uint32_t>(walk_.span_of(cursor).count * binding_.element_bytes)};
}

std::byte* LaneRun::address(const Ref& ref, const Cursor& cursor, const Extent& span) const {
  switch (ref.space) {
    case Space::kInput:  // only ever read
      return const_cast<std::byte*>(binding_.input) +
             (binding_.blocks->input[ref.chunk].offset + span.offset) * binding_.element_bytes;
    case Space::kOutput:
      return binding_.output + (binding_.blocks->output[ref.chunk].offset + span.offset) * binding_.element_bytes;
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
std::byte* LaneRun::window_address(const Ref& ref, const Cursor& cursor, const Extent& span) const {
  const WindowBinding& windows = *binding_.windows;
  const PeerMemory& peer = windows.ranks[ref.peer];
  if ((ref.flags & kStaging) != 0) {
    const uint64_t chunk = uint64_t{lane_} * binding_.plan->chunks + ref.chunk;
    return peer.staging + (chunk * binding_.cut.chunk() + cursor.slice * binding_.cut.slice) * binding_.element_bytes;
  }
  if ((ref.flags & kPeerOutput) != 0) {
    if (peer.output == nullptr) return nullptr;
    return peer.output + (windows.output_blocks[ref.chunk].offset + span.offset) * binding_.element_bytes;
  }
  if (peer.input == nullptr) return nullptr;
  return peer.input + (windows.input_blocks[ref.chunk].offset + span.offset) * binding_.element_bytes;
}

bool LaneRun::pull(const Ref& ref, const Extent& span, std::byte* to) {
  const WindowBinding& windows = *binding_.windows;
  const PeerMemory& peer = windows.ranks[ref.peer];
  const bool output = (ref.flags & kPeerOutput) != 0;
  const Extent& block = (output ? windows.output_blocks : windows.input_blocks)[ref.chunk];
  const uint64_t address =
      (output ? peer.output_address : peer.input_address) + (block.offset + span.offset) * binding_.element_bytes;
  if (windows.memory->pull(peer.world_rank, address, to, span.count * binding_.element_bytes)) return true;
  failed_pull_ = ref.peer;
  return false;
}

// The caller's memory for a slice that is stored as it comes; nullptr for one that is folded.
std::byte* LaneRun::landing_for(const BoundStep& step, const Cursor& cursor) const {
  if (!step.copies) return nullptr;
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (in_memory(step.targets[i])) return address(step.targets[i], cursor, walk_.span_of(cursor));
  }
  return nullptr;
}

bool LaneRun::post_landing(const Ref& ref, Landing wish) {
  Link& link = link_to(ref);
  if (!link.can_post()) return false;
  const BoundStep& step = walk_.step_at(walk_.posted());
  std::byte* landing = landing_for(step, walk_.posted());
  if (landing != nullptr && !walk_.may_write(walk_.posted())) {
    if (wish == Landing::kWait && link.unfilled() > 0 && idle_passes_ < kIdlePassesBeforeSlot) return false;
    landing = nullptr;
  }
  link.post(tag_of(walk_.posted()), landing);
  return true;
}

bool LaneRun::post(Landing landing) {
  bool moved = false;
  while (!walk_.posted().at_end) {
    const BoundStep& step = walk_.step_at(walk_.posted());
    if (step.barrier != 0) posted_source_ = step.source_count;
    for (; posted_source_ < step.source_count; ++posted_source_) {
      const Ref& ref = step.sources[posted_source_];
      if (in_memory(ref)) continue;
      if (!post_landing(ref, landing)) return moved;
      moved = true;
    }
    posted_source_ = 0;
    walk_.pass_posted();
  }
  return moved;
}

bool LaneRun::ready(const BoundStep& step) {
  if (step.barrier != 0) return all_arrived(step);
  for (uint32_t i = 0; i < step.source_count; ++i) {
    if (!in_memory(step.sources[i]) && link_to(step.sources[i]).arrived() == nullptr) return false;
  }
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (!in_memory(step.targets[i]) && !link_to(step.targets[i]).can_send()) return false;
  }
  return walk_.may_write(walk_.combined());
}

bool LaneRun::combine_one() {
  if (!walk_.may_combine() || failed_pull_ >= 0 || failed_meeting_ >= 0 || closed_owner_ >= 0) return false;
  const BoundStep& step = walk_.step_at(walk_.combined());
  if (!ready(step)) return false;
  if (step.signal()) {
    send_signals(step);
  } else if (!move_slice(step)) {
    return false;
  }
  for (uint32_t i = 0; i < step.source_count && step.barrier == 0; ++i) {
    if (!in_memory(step.sources[i])) link_to(step.sources[i]).release();
  }
  walk_.pass_combined();
  return true;
}

// Cost where buffers of others are touched: a sequentially consistent store and, twice, a load for each owner.
bool LaneRun::move_slice(const BoundStep& step) {
  const Extent span = walk_.span_of(walk_.combined());
  const auto move = [&] { return step.copies ? move_bytes(step, span) : fold(step, span); };
  if (!step.peers_buffers) return move();
  Board& board = binding_.windows->noticeboard->board;
  board.enter();
  const bool moved = buffers_open(step) && move();
  // An owner that did not wait for this rank any longer may have changed what was read.
  const bool valid = moved && buffers_open(step);
  board.leave();
  if (closed_owner_ >= 0) binding_.windows->noticeboard->ring(closed_owner_);  // it may sleep until this rank has left
  return valid;
}

bool LaneRun::buffers_open(const BoundStep& step) {
  const Board& board = binding_.windows->noticeboard->board;
  for (const Ref* ref = step.sources; ref != step.targets + step.target_count; ++ref) {
    if (!is_peers_buffer(*ref) || !board.closed(ref->peer)) continue;
    closed_owner_ = ref->peer;
    return false;
  }
  return true;
}

// Every rank has one number for all: whom this rank does not signal does not wait for it in this meeting. What was
// written before is seen by whoever sees the number.
void LaneRun::arrive(const BoundStep& step) {
  Noticeboard& noticeboard = *binding_.windows->noticeboard;
  noticeboard.board.arrive(lane_, walk_.barrier_number(walk_.combined()));
  for (uint32_t i = 0; i < step.target_count; ++i) noticeboard.ring(step.targets[i].peer);
}

// Cost while some have not: one load.
bool LaneRun::all_arrived(const BoundStep& step) {
  if (step.source_count == 0) return true;
  const Board& board = binding_.windows->noticeboard->board;
  const uint64_t number = walk_.barrier_number(walk_.combined());
  for (uint32_t i = 0; i < step.source_count; ++i) {
    const uint64_t theirs = board.arrived(step.sources[i].peer, lane_);
    if (theirs < number) return false;
    // Nobody gets past this operation without this rank.
    if (theirs > walk_.last_barrier()) {
      failed_meeting_ = step.sources[i].peer;
      return false;
    }
  }
  return true;
}

void LaneRun::send_signals(const BoundStep& step) {
  if (step.barrier != 0) {
    if (step.target_count > 0) arrive(step);
    return;
  }
  for (uint32_t i = 0; i < step.target_count; ++i) hand_over(port_of(step.targets[i]), nullptr);
}

// Sends memory that stays as it is until the link has sent it (a target in memory, or the caller's input).
void LaneRun::hand_over(Port& port, const std::byte* memory) {
  keep_until_sent(port, port.link->send(tag_of(walk_.combined()), memory));
}

void LaneRun::hand_over_reserved(Port& port) { keep_until_sent(port, port.link->commit(tag_of(walk_.combined()))); }

// A link over memory sends at once and has room again as soon as the peer has read, in the middle of a pass: what is
// sent by then must not fill the queue.
void LaneRun::keep_until_sent(Port& port, uint64_t sent) {
  drop_sent(port);
  port.sending.push({walk_.combined().number, sent});
}

void LaneRun::drop_sent(Port& port) {
  const uint64_t sent = port.link->sent();
  while (!port.sending.empty() && port.sending.front().sent <= sent) port.sending.pop();
}

// One source, stored and forwarded as it is. Cost beside the transfer: none where the slice landed in its place
// (all_gather, the second half of all_reduce), one copy where it did not, and one where it is forwarded without being
// stored.
bool LaneRun::move_bytes(const BoundStep& step, const Extent& span) {
  const Ref& source = step.sources[0];
  const size_t bytes = span.count * binding_.element_bytes;
  const bool from_memory = in_memory(source);
  const std::byte* from = from_memory ? address(source, walk_.combined(), span) : link_to(source).arrived();
  if (from == nullptr) {  // a window that is not mapped
    std::byte* to = address(step.targets[0], walk_.combined(), span);
    if (!pull(source, span, to)) return false;
    from = to;
  }
  const std::byte* stays = from_memory ? from : nullptr;
  for (uint32_t i = 0; i < step.target_count; ++i) {
    if (!in_memory(step.targets[i])) continue;
    std::byte* to = address(step.targets[i], walk_.combined(), span);
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
bool LaneRun::fold(const BoundStep& step, const Extent& span) {
  const void* sources[kMaxCombineSources];
  void* targets[kMaxCombineTargets];
  CombineMove move;
  for (uint32_t i = 0; i < step.source_count; ++i) {
    const Ref& ref = step.sources[i];
    sources[i] = in_memory(ref) ? address(ref, walk_.combined(), span) : link_to(ref).arrived();
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
    std::byte* to = address(step.targets[i], walk_.combined(), span);
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
void LaneRun::fold_and_stream(const CombineMove& move, const Extent& span, std::byte* staged) {
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
  uint64_t sent = walk_.combined().number;
  for (Port& port : ports_) {
    drop_sent(port);
    if (!port.sending.empty()) sent = std::min(sent, port.sending.front().number);
  }
  walk_.set_sent(sent);
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
  uint32_t combined = 0;
  while (combined < kSlicesPerPass && combine_one()) {
    ++combined;
    post(landing);
  }
  if (combined > 0) {
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
