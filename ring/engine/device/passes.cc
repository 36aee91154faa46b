#include "ring/engine/device/passes.h"

#include <algorithm>

#include "kernels/resolve.h"
#include "ring/engine/run/slicing.h"
#include "rondo/error.h"

namespace rondo {
namespace {

constexpr uint64_t kGranuleBytes = 64;  // blocks of one buffer begin at whole lines of it

class Binder {
 public:
  // One that comes, or one that goes.
  struct Message {
    const BlockPlace& places;
    uint32_t number;
  };
  Binder(const CheckedCall& call, const Plan& plan) : element_(dtype_bytes(call.dtype)) {
    Slicing slicing;
    slicing.granule = std::max<uint64_t>(1, kGranuleBytes / element_);
    blocks_a_rank_ = call.blocks != nullptr;
    lay_out_windows(call, plan, slicing, windows_);
  }

  uint64_t count(const Ref& ref) const { return extent(ref, false).count; }

  // Own memory, and places of messages: an address. Another rank's buffers: bytes to add.
  PlaceRef place(const Ref& ref, const PassMemory& memory, const Message& message, uintptr_t& pointer) const {
    if (ref.space == Space::kMailbox) return message_place(ref, message, pointer);
    const bool window = ref.space == Space::kWindow;
    const bool is_output = window ? (ref.flags & kPeerOutput) != 0 : ref.space == Space::kOutput;
    const Extent at = extent(ref, is_output);
    const uint64_t block = blocks_a_rank_ && at.offset > 0 ? ref.chunk : 0;
    const uint64_t offset = blocks_a_rank_ ? 0 : at.offset * element_;
    if (window) {
      pointer = offset;
      return {static_cast<uint8_t>(ref.peer), static_cast<uint8_t>(is_output), static_cast<uint16_t>(block)};
    }
    const BlockPlace& own = is_output ? memory.output : memory.input;
    pointer = reinterpret_cast<uintptr_t>(own.data) + block * own.pitch + offset;
    return {kOwnPlace, 0, 0};
  }

 private:
  PlaceRef message_place(const Ref& ref, const Message& message, uintptr_t& pointer) const {
    if (count(ref) * element_ > message.places.pitch) {
      throw Exception(ErrorCode::kInternal, "a message is larger than the place for it");
    }
    pointer = reinterpret_cast<uintptr_t>(message.places.data) + message.number % kStreamSlots * message.places.pitch;
    return {kOwnPlace, 0, 0};
  }
  Extent extent(const Ref& ref, bool output) const {
    return (output ? windows_.output_blocks : windows_.input_blocks)[ref.chunk];
  }

  uint64_t element_;
  bool blocks_a_rank_ = false;
  WindowBinding windows_;
};

uint64_t scaled_sources(const CombineSpec& spec, std::span<const Ref> sources) {
  uint64_t scaled = 0;
  if (!combine_scales(spec)) return 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if ((sources[i].flags & kScale) != 0) scaled |= uint64_t{1} << i;
  }
  return scaled;
}

void set_fold(const CombineSpec& spec, const CombineMove& move, DeviceFold& fold) {
  const ResolvedMove resolved = resolve(spec, move);
  fold.scaled = resolved.scaled;
  fold.arguments = {spec.scalar, spec.world};
  fold.source_count = move.source_count;
  fold.target_count = move.target_count;
  fold.dtype = static_cast<uint8_t>(spec.dtype);
  fold.fold = resolved.copies ? kCopies : static_cast<uint8_t>(resolved.fold);
}

}  // namespace

BoundPass bind_pass(const CheckedCall& call, const Plan& plan, const StreamEntry& entry, const PassMemory& memory) {
  const Binder binder(call, plan);
  const Step& step = plan.steps[entry.index];
  const std::span<const Ref> sources = sources_of(plan, step), targets = targets_of(plan, step);
  const CombineSpec spec{call.dtype, call.op, call.scalar, static_cast<uint32_t>(plan.world)};
  BoundPass pass;
  pass.fold.count = binder.count(sources[0]);
  set_fold(spec,
           {.scaled = scaled_sources(spec, sources),
            .source_count = step.sources,
            .target_count = step.targets,
            .finish = (step.flags & kFinish) != 0 && combine_finishes(spec)},
           pass.fold);
  for (size_t i = 0; i < sources.size(); ++i) {
    uintptr_t pointer = 0;
    pass.sources[i] = binder.place(sources[i], memory, {memory.arrivals, entry.received}, pointer);
    pass.fold.sources[i] = reinterpret_cast<const void*>(pointer);
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    uintptr_t pointer = 0;
    pass.targets[i] = binder.place(targets[i], memory, {memory.departures, entry.sent}, pointer);
    pass.fold.targets[i] = reinterpret_cast<void*>(pointer);
  }
  // In place a copy of a block to itself moves nothing.
  const bool stays = step.sources == 1 && step.targets == 1 && pass.sources[0].rank == kOwnPlace &&
                     pass.targets[0].rank == kOwnPlace && pass.fold.sources[0] == pass.fold.targets[0];
  if (stays && pass.fold.fold == kCopies) pass.fold.count = 0;
  return pass;
}

BoundPass copy_pass(std::byte* to, const std::byte* from, uint64_t bytes) {
  BoundPass pass;
  pass.fold.sources[0] = from;
  pass.fold.targets[0] = to;
  pass.fold.count = bytes;
  pass.fold.source_count = pass.fold.target_count = 1;
  pass.fold.dtype = static_cast<uint8_t>(DType::kUint8);
  pass.fold.fold = kCopies;
  pass.sources[0] = pass.targets[0] = {kOwnPlace, 0, 0};
  return pass;
}

Touched touched_by_others(const std::vector<Plan>& plans, int rank) {
  Touched touched;
  for (const Plan& plan : plans) {
    if (plan.rank == rank) continue;
    for (const Ref& ref : plan.refs) {
      if (ref.space != Space::kWindow || ref.peer != rank) continue;
      ((ref.flags & kPeerOutput) != 0 ? touched.output : touched.input) = true;
    }
  }
  return touched;
}

}  // namespace rondo
