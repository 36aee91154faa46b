#include "ring/engine/run/slice_mover.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/stream_copy.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

// Bytes that are folded at a time and then streamed: such a piece stays in a first-level cache beside its
// sources.
constexpr size_t kStreamedPieceBytes = 8 * 1024;

bool is_window(const Ref& ref) { return ref.space == Space::kWindow; }
// What WireFold must have tiles for.
size_t most_sources(const Plan& plan) {
  size_t most = 0;
  for (const Step& step : plan.steps) most = std::max<size_t>(most, step.sources);
  return most;
}
bool is_staging(const Ref& ref) { return is_window(ref) && (ref.flags & kStaging) != 0; }

}  // namespace

void SliceMover::start(const Binding& binding, std::span<Link* const> links) {
  const Plan& plan = *binding.plan;
  ports_.resize(links.size());
  port_index_.resize(static_cast<size_t>(plan.world));
  for (size_t i = 0; i < links.size(); ++i) {
    port_index_[static_cast<size_t>(plan.peers[i])] = static_cast<uint32_t>(i);
    ports_[i].start(*links[i]);
  }
  // Folds of coded slices keep the type that they are made in.
  scratch_element_bytes_ =
      binding.start.buffers.wire.format == WireFormat::kNone ? binding.element_bytes : sizeof(float);
  const size_t slot = plan.blocks * binding.slicing.chunk() * scratch_element_bytes_;
  if (plan.scratch_slots > 0) scratch_.resize(plan.scratch_slots * slot);
  binding_ = binding;
  start_again(binding.start);
}

// Forgets the notes of the call before: they belong to memory that may have other contents now.
void SliceMover::start_again(const RunStart& start) {
  binding_.begin(start);
  failure_ = {};
  not_finite_ = {};
  kept_notes_.clear();
  if (start.buffers.wire.format != WireFormat::kNone) {
    wire_.bind(start.buffers.wire, binding_.dtype, binding_.combine, binding_.plan->rank, most_sources(*binding_.plan));
  }
}

// Offsets are those of the block in its buffer, and of the slice in the block; in scratch and staging memory
// each block has room for one chunk, which the next round uses again.
std::byte* SliceMover::address(const Ref& ref, const Slice& slice) const {
  const size_t element = binding_.element_bytes;
  const Slicing& slicing = binding_.slicing;
  switch (ref.space) {
    case Space::kInput:  // only ever read
      return const_cast<std::byte*>(binding_.start.buffers.input) +
             (binding_.blocks->input[ref.block].offset + slice.elements.offset) * element;
    case Space::kOutput:
      return binding_.start.buffers.output +
             (binding_.blocks->output[ref.block].offset + slice.elements.offset) * element;
    case Space::kScratch:
      return const_cast<std::byte*>(scratch_.data()) +
             (ref.block * slicing.chunk() + slice.index * slicing.slice) * scratch_element_bytes_;
    case Space::kWindow:
      if (is_staging(ref)) {
        return binding_.windows->ranks[ref.peer].staging +
               (ref.block * slicing.chunk() + slice.index * slicing.slice) * element;
      }
      return peer_place(ref, slice).mapped;
    case Space::kMailbox:
      break;
  }
  RONDO_CHECK(false, "a mailbox has no address");
  return nullptr;
}

// Where a slice lies in a peer's buffer: mapped here, and as an address in the peer's process.
SliceMover::PeerPlace SliceMover::peer_place(const Ref& ref, const Slice& slice) const {
  const WindowBinding& windows = *binding_.windows;
  const PeerMemory& peer = windows.ranks[ref.peer];
  const bool output = (ref.flags & kPeerOutput) != 0;
  const Extent& block = (output ? windows.output_blocks : windows.input_blocks)[ref.block];
  const uint64_t offset = (block.offset + slice.elements.offset) * binding_.element_bytes;
  std::byte* mapped = output ? peer.output : peer.input;
  return {mapped == nullptr ? nullptr : mapped + offset, (output ? peer.output_address : peer.input_address) + offset};
}

// Moves one slice, inside an access of the board if buffers of other ranks are touched. Their owners may close
// them at any time (GracePeriod).
//
// Cost of an access: two stores, one of them sequentially consistent, and two loads for each owner.
bool SliceMover::move(const BoundStep& step, Slice& slice) {
  if (!step.peers_buffers) return move_open(step, slice);
  bool moved = false;
  {
    const PostBoard::Access access(binding_.windows->channel->board);
    // An owner that did not wait for this rank any longer may have changed what was read: so it is looked at twice.
    moved = buffers_open(step) && move_open(step, slice) && buffers_open(step);
  }
  // The owner may sleep until this rank has left its buffers.
  if (failure_.kind == RunFailure::Kind::kClosed) binding_.windows->channel->ring(failure_.peer);
  return moved;
}

// Whether no owner of a touched buffer has closed it. A closed one means that the communicator has failed
// there.
bool SliceMover::buffers_open(const BoundStep& step) {
  const PostBoard& board = binding_.windows->channel->board;
  for (const std::span<const Ref> refs : {step.sources, step.targets}) {
    for (const Ref& ref : refs) {
      if (!is_window(ref) || is_staging(ref) || !board.closed(ref.peer)) continue;
      fail({RunFailure::Kind::kClosed, ref.peer});
      return false;
    }
  }
  return true;
}

// move_open() of a call with a wire format, over links only: what links carry is coded, what is in memory is
// not.
bool SliceMover::move_coded(const BoundStep& step, Slice& slice) {
  WireSource sources[kMaxCombineSources];
  WireTarget memory[kMaxCombineTargets];
  std::byte* slots[kMaxCombineTargets];
  size_t stored = 0, sent = 0;
  bool results = false;  // partial sums in library memory are not this rank's to report
  for (size_t i = 0; i < step.sources.size(); ++i) {
    const Ref& ref = step.sources[i];
    const bool coded = is_mailbox(ref);
    sources[i].data = coded ? link(ref).arrived() : address(ref, slice);
    sources[i].coded = coded;
    if (coded) sources[i].bytes = link(ref).arrived_bytes();
    sources[i].wide = ref.space == Space::kScratch;
    sources[i].own = ref.space == Space::kInput;
    if (!coded && !sources[i].own) sources[i].note = note_of(sources[i].data);
  }
  for (const Ref& ref : step.targets) {
    if (is_mailbox(ref)) {
      slots[sent++] = link(ref).reserve(slice.tag.bytes);
    } else {
      memory[stored++] = {address(ref, slice), ref.space == Space::kScratch};
      results |= ref.space == Space::kOutput;
    }
  }
  WireMove move;
  move.sources = {sources, step.sources.size()};
  move.memory = {memory, stored};
  move.slots = {slots, sent};
  move.count = slice.elements.count;
  if (binding_.start.buffers.wire.format == WireFormat::kPacked) {
    const std::optional<uint32_t> bytes = move_packed(binding_.dtype, move);
    if (!bytes) {
      fail({RunFailure::Kind::kDamaged, step.sources[0].peer});
      return false;
    }
    slice.tag.bytes = *bytes;
    send(step, slice, nullptr);
    return true;
  }
  move.passes_on = step.passes_on;
  move.finish = step.finish;
  move.element = binding_.blocks->input[block_of(step)].offset + slice.elements.offset;
  move.residual =
      binding_.start.buffers.wire.residual == nullptr ? nullptr : binding_.start.buffers.wire.residual + move.element;
  const WireNote found = wire_.run(move);
  for (size_t i = 0; i < stored; ++i) keep_note(found, memory[i].data);
  if (results && found.found()) note(found, step, slice);
  send(step, slice, nullptr);
  return true;
}

WireNote SliceMover::note_of(const std::byte* memory) const {
  const auto kept = kept_notes_.find(memory);
  return kept == kept_notes_.end() ? WireNote{} : kept->second;
}

// Remembers that a slice in memory is not finite, for the step that sends it on. Allocates only then.
void SliceMover::keep_note(const WireNote& found, const std::byte* memory) {
  if (found.found()) {
    kept_notes_[memory] = found;
  } else if (!kept_notes_.empty()) {
    kept_notes_.erase(memory);
  }
}

// Keeps the first element that is not finite. It is counted as the caller does: in the buffer of an all_reduce,
// in the block of other collectives.
void SliceMover::note(const WireNote& found, const BoundStep& step, const Slice& slice) {
  WireNote here = found;
  here.index += slice.elements.offset;
  if (binding_.plan->collective == Collective::kAllReduce) here.index += binding_.blocks->input[block_of(step)].offset;
  not_finite_ = earlier(not_finite_, here);
}

bool SliceMover::move_open(const BoundStep& step, Slice& slice) {
  if (binding_.start.buffers.wire.format != WireFormat::kNone) return move_coded(step, slice);
  const void* sources[kMaxCombineSources];
  for (size_t i = 0; i < step.sources.size(); ++i) sources[i] = source(step, i, slice);
  if (failed()) return false;
  const std::byte* kept =
      step.copies ? copy(step, slice, static_cast<const std::byte*>(sources[0])) : fold(step, slice, sources);
  send(step, slice, kept);
  return true;
}

// Where a source can be read. A pulled source that is only stored lands in its target; others land in memory
// that stays in cache (measured: docs/plans.md, "Windows").
const std::byte* SliceMover::source(const BoundStep& step, size_t index, const Slice& slice) {
  const Ref& ref = step.sources[index];
  if (is_mailbox(ref)) return link(ref).arrived();
  const std::byte* memory = address(ref, slice);
  if (memory != nullptr || !is_window(ref)) return memory;
  const size_t room = binding_.slicing.slice * binding_.element_bytes;
  if (!step.copies && pulled_.size() < room * step.sources.size()) pulled_.resize(room * step.sources.size());
  std::byte* to = step.copies ? address(step.targets[0], slice) : pulled_.data() + index * room;
  const WindowBinding& windows = *binding_.windows;
  const int owner = windows.ranks[ref.peer].world_rank;
  if (!windows.memory->pull(owner, peer_place(ref, slice).address, to, slice.bytes)) {
    fail({RunFailure::Kind::kUnreadable, ref.peer});
  }
  return to;
}

// One source, stored and forwarded as it is. Returns the memory from which it can be sent; nullptr: it is in
// the links' slots already.
//
// Cost beside the transfer: none where the slice has landed in its place (all_gather, the second half of
// all_reduce); one copy where it has not, or where it is forwarded without being stored.
const std::byte* SliceMover::copy(const BoundStep& step, const Slice& slice, const std::byte* from) {
  const Ref& source = step.sources[0];
  const std::byte* kept = is_mailbox(source) ? nullptr : from;
  for (const Ref& ref : step.targets) {
    if (is_mailbox(ref)) continue;
    std::byte* to = address(ref, slice);
    if (is_staging(ref)) {
      cross_copy(to, from, slice.bytes, binding_.windows->channel->stores);
    } else if (binding_.streams && is_window(source) && to != from) {
      stream_copy(to, from, slice.bytes);
    } else if (to != from && slice.bytes > 0) {  // an empty block's memory may be null
      std::memcpy(to, from, slice.bytes);
    }
    kept = to;
  }
  if (kept != nullptr) return kept;
  for (const Ref& ref : step.targets) {
    std::byte* slot = link(ref).reserve(slice.tag.bytes);
    if (slice.bytes > 0) std::memcpy(slot, from, slice.bytes);
  }
  return nullptr;
}

// Several sources, or one that is scaled or finished. Returns what copy() does. Slots are written in place,
// unless the value is stored anyway: then it is sent from there.
//
// Cost: one pass over the sources, in cache if the slice has just been received (kernels/combine.h). No copy.
const std::byte* SliceMover::fold(const BoundStep& step, const Slice& slice, const void* const* sources) {
  void* targets[kMaxCombineTargets];
  CombineMove move;
  std::byte* kept = nullptr;
  std::byte* staged = nullptr;
  for (const Ref& ref : step.targets) {
    if (is_mailbox(ref)) continue;
    std::byte* to = address(ref, slice);
    if (is_staging(ref) && streams(binding_.windows->channel->stores, slice.bytes)) {
      staged = to;
    } else {
      targets[move.target_count++] = kept = to;
    }
  }
  if (kept == nullptr && staged == nullptr) {
    for (const Ref& ref : step.targets) targets[move.target_count++] = link(ref).reserve(slice.tag.bytes);
  }
  move.sources = sources;
  move.targets = targets;
  move.source_count = static_cast<uint8_t>(step.sources.size());
  move.scaled = step.scaled;
  move.finish = step.finish;
  if (staged == nullptr) {
    combine(binding_.combine, move, slice.elements.count);
  } else {
    fold_and_stream(move, slice.elements.count, staged);
  }
  return kept;
}

// A fold into staging memory past the caches, and into at most one other target. Piece by piece: folded in
// cache, and copied from there with streamed stores.
void SliceMover::fold_and_stream(const CombineMove& move, uint64_t count, std::byte* staged) {
  RONDO_CHECK(move.target_count <= 1, "a fold into staging memory has more than one other target");
  alignas(64) std::byte piece[kStreamedPieceBytes];
  const size_t element = binding_.element_bytes;
  const uint64_t most = kStreamedPieceBytes / element;
  const void* sources[kMaxCombineSources];
  void* target = piece;
  CombineMove part = move;
  part.sources = sources;
  part.targets = &target;
  part.target_count = 1;
  for (uint64_t at = 0; at < count; at += most) {
    const uint64_t elements = std::min(most, count - at);
    for (uint32_t i = 0; i < move.source_count; ++i) {
      sources[i] = static_cast<const std::byte*>(move.sources[i]) + at * element;
    }
    if (move.target_count > 0) target = static_cast<std::byte*>(move.targets[0]) + at * element;
    combine(binding_.combine, part, elements);
    stream_copy(staged + at * element, target, elements * element);
  }
}

// Sends the slice to every target that is a mailbox: from `kept`, else what was written into the reserved
// slots.
void SliceMover::send(const BoundStep& step, const Slice& slice, const std::byte* kept) {
  for (const Ref& ref : step.targets) {
    if (!is_mailbox(ref)) continue;
    if (kept != nullptr) {
      port(ref).send(slice, kept);
    } else {
      port(ref).commit(slice);
    }
  }
}

void SliceMover::signal(const BoundStep& step, const Slice& slice) {
  for (const Ref& ref : step.targets) port(ref).send(slice, nullptr);
}

bool SliceMover::pump() {
  bool moved = false;
  for (Port& port : ports_) moved |= port.link().pump();
  return moved;
}

uint64_t SliceMover::oldest_unsent(uint64_t none) {
  for (Port& port : ports_) none = std::min(none, port.oldest_unsent(none));
  return none;
}

RunFailure SliceMover::failure() const {
  if (failed()) return failure_;
  for (size_t i = 0; i < ports_.size(); ++i) {
    const Link& link = ports_[i].link();
    if (link.error() != nullptr) return {RunFailure::Kind::kLink, binding_.plan->peers[i], &link};
  }
  return {};
}

}  // namespace rondo
