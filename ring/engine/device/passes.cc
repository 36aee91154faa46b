#include "ring/engine/device/passes.h"

#include <algorithm>

#include "kernels/resolve.h"
#include "ring/engine/run/slicing.h"
#include "rondo/error.h"

namespace rondo {
namespace {

static_assert(kMessageWords == kArrivedWord && kCallWords == kStreamWords && kMessageSlots == kStreamSlots);

constexpr uint64_t kGranuleBytes = 64;  // blocks of one buffer begin at whole lines of it

class Binder {
 public:
  Binder(const CheckedCall& call, const Plan& plan) : element_(dtype_bytes(call.dtype)) {
    Slicing slicing;
    slicing.granule = std::max<uint64_t>(1, kGranuleBytes / element_);
    blocks_a_rank_ = call.blocks != nullptr;
    lay_out_windows(call, plan, slicing, windows_);
  }

  uint64_t count(const Ref& ref) const { return extent(ref, false).count; }

  // message: place and number of one that comes, or goes.
  CallRef place(const Ref& ref, const BlockPlace& input, const BlockPlace& output, const CallRef& message) const {
    if (ref.space == Space::kMailbox) return message;
    const bool window = ref.space == Space::kWindow;
    const bool is_output = window ? (ref.flags & kPeerOutput) != 0 : ref.space == Space::kOutput;
    const Extent at = extent(ref, is_output);
    const uint64_t block = blocks_a_rank_ && at.offset > 0 ? ref.chunk : 0;
    const uint64_t offset = blocks_a_rank_ ? 0 : at.offset * element_;
    if (window) {
      return {offset, static_cast<uint16_t>(block), static_cast<uint8_t>(ref.peer),
              is_output ? CallRef::kOutput : CallRef::kInput};
    }
    const BlockPlace& own = is_output ? output : input;
    return {reinterpret_cast<uintptr_t>(own.data) + block * own.pitch + offset, 0, 0, CallRef::kAddress};
  }

 private:
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

uint16_t mask_of(const std::vector<int>& peers) {
  uint16_t mask = 0;
  for (const int peer : peers) mask = static_cast<uint16_t>(mask | 1 << peer);
  return mask;
}

}  // namespace

void bind_program(const CheckedCall& call, const Plan& plan, const StreamProgram& program, const BlockPlace& input,
                  const BlockPlace& output, DeviceCall& made) {
  const Binder binder(call, plan);
  const CombineSpec spec{call.dtype, call.op, call.scalar, static_cast<uint32_t>(plan.world)};
  made.arguments = {spec.scalar, spec.world};
  made.dtype = static_cast<uint8_t>(call.dtype);
  uint32_t passes = 0, refs = 0;
  if (program.entries.size() > kMaxCallSteps) throw Exception(ErrorCode::kInternal, "a kernel takes fewer steps");
  made.step_count = static_cast<uint8_t>(program.entries.size());
  for (size_t i = 0; i < program.entries.size(); ++i) {
    const StreamEntry& entry = program.entries[i];
    CallStep& step = made.steps[i];
    if (entry.kind != StreamEntry::Kind::kPass) {
      step = {entry.kind == StreamEntry::Kind::kSignal ? CallStep::kSignal : CallStep::kAwait,
              static_cast<uint8_t>(entry.index), mask_of(entry.peers), static_cast<uint16_t>(entry.messages), 0};
      continue;
    }
    const Step& planned = plan.steps[entry.index];
    const std::span<const Ref> sources = sources_of(plan, planned), targets = targets_of(plan, planned);
    if (passes == kMaxCallPasses || refs + sources.size() + targets.size() > kMaxCallRefs) {
      throw Exception(ErrorCode::kInternal, "a kernel takes fewer passes");
    }
    const ResolvedMove resolved = resolve(spec, {.scaled = scaled_sources(spec, sources),
                                                 .source_count = planned.sources,
                                                 .target_count = planned.targets,
                                                 .finish = (planned.flags & kFinish) != 0 && combine_finishes(spec)});
    step = {CallStep::kPass, 0, 0, 0, static_cast<uint16_t>(passes)};
    CallPass& pass = made.passes[passes++];
    pass = {binder.count(sources[0]), resolved.scaled, static_cast<uint16_t>(refs),
            planned.sources,          planned.targets, resolved.copies ? kCopies : static_cast<uint8_t>(resolved.fold)};
    CallRef* const at = &made.refs[refs];
    for (const Ref& ref : sources) {
      made.refs[refs++] = binder.place(ref, input, output, {entry.received, 0, 0, CallRef::kArrival});
    }
    for (const Ref& ref : targets) {
      made.refs[refs++] = binder.place(ref, input, output, {entry.sent, 0, 0, CallRef::kDeparture});
    }
    // In place a copy of a block to itself moves nothing.
    const bool stays = planned.sources == 1 && planned.targets == 1 && at[0].place == CallRef::kAddress &&
                       at[1].place == CallRef::kAddress && at[0].offset == at[1].offset;
    if (stays && resolved.copies) pass.count = 0;
  }
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
