#include "ring/engine/device/passes.h"

#include <algorithm>

#include "kernels/resolve.h"
#include "ring/engine/run/slicing.h"
#include "rondo/error.h"

namespace rondo {
namespace {

static_assert(kMessageWords == kArrivedWord && kCallWords == kStreamWords && kMessageSlots == kStreamSlots);

constexpr uint64_t kGranuleBytes = 64;  // blocks of one buffer begin at whole lines of it

// Finds where the blocks of a call lie, for references of a kernel.
class Binder {
 public:
  Binder(const CheckedCall& call, const Plan& plan) : element_(dtype_bytes(call.dtype)) {
    Slicing slicing;
    slicing.granule = std::max<uint64_t>(1, kGranuleBytes / element_);
    blocks_a_rank_ = call.blocks != nullptr;
    lay_out_windows(call, plan, slicing, windows_);
  }

  uint64_t count(const Ref& ref) const { return extent(ref, false).count; }

  // Serves all references but messages.
  CallRef place(const Ref& ref, const BlockPlace& input, const BlockPlace& output) const {
    const bool window = ref.space == Space::kWindow;
    const bool is_output = window ? (ref.flags & kPeerOutput) != 0 : ref.space == Space::kOutput;
    const Extent at = extent(ref, is_output);
    const uint64_t block = blocks_a_rank_ && at.offset > 0 ? ref.block : 0;
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
    return (output ? windows_.output_blocks : windows_.input_blocks)[ref.block];
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

CallRef post(const Ref& ref, CallRef::Place place) { return {0, 0, static_cast<uint8_t>(ref.peer), place}; }

uint16_t mask_of(const std::vector<int>& peers) {
  uint16_t mask = 0;
  for (const int peer : peers) mask = static_cast<uint16_t>(mask | 1 << peer);
  return mask;
}

// Puts the passes of a program into a call.
class Passes {
 public:
  Passes(const CheckedCall& call, const Plan& plan, const BlockPlace& input, const BlockPlace& output, DeviceCall& made,
         Bound behind)
      : plan_(plan),
        input_(input),
        output_(output),
        made_(made),
        binder_(call, plan),
        spec_{call.dtype, call.op, call.scalar, static_cast<uint32_t>(plan.world)},
        first_pass_(behind.passes),
        bound_(behind) {
    made.step_count = 0;
    made.arguments = {spec_.scalar, spec_.world};
    made.dtype = static_cast<uint8_t>(call.dtype);
  }

  // The step of entry `at` of the program, and of those behind it that are one with it; the next one.
  size_t add(const StreamProgram& program, size_t at) {
    const StreamEntry& entry = program.entries[at++];
    switch (entry.kind) {
      case StreamEntry::Kind::kSignal:
      case StreamEntry::Kind::kAwait:
        push({entry.kind == StreamEntry::Kind::kSignal ? CallStep::kSignal : CallStep::kAwait,
              static_cast<uint8_t>(entry.index), mask_of(entry.peers), static_cast<uint16_t>(entry.messages), 0});
        break;
      case StreamEntry::Kind::kPost:
        add_post(step_of(entry));
        break;
      case StreamEntry::Kind::kTake:
        for (add_taken(step_of(entry)); at < program.entries.size() && program.entries[at].kind == entry.kind; ++at) {
          add_taken(step_of(program.entries[at]));
        }
        add_pass(CallStep::kTake, binder_.count(plan_.refs[step_of(entry).first]), {.copies = true});
        break;
      case StreamEntry::Kind::kPass:
        add_fold(step_of(entry), entry, program.posts);
        break;
    }
    return at;
  }

  const Bound& bound() const { return bound_; }

 private:
  void push(const CallStep& step) {
    if (made_.step_count == kMaxCallSteps) throw Exception(ErrorCode::kInternal, "a kernel takes fewer steps");
    made_.steps[made_.step_count++] = step;
  }
  // Requires an entry that is no signal and no wait: their index is a word's.
  const Step& step_of(const StreamEntry& entry) const { return plan_.steps[entry.index]; }
  CallRef place(const Ref& ref) const { return binder_.place(ref, input_, output_); }

  void add_post(const Step& step) {
    sources_.push_back(place(plan_.refs[step.first]));
    for (const Ref& ref : targets_of(plan_, step)) {
      if (ref.space == Space::kMailbox) targets_.push_back(post(ref, CallRef::kPost));
    }
    add_pass(CallStep::kPost, binder_.count(plan_.refs[step.first]), {.copies = true});
  }
  void add_taken(const Step& step) {
    for (const Ref& ref : sources_of(plan_, step)) {
      if (ref.space != Space::kMailbox) continue;
      sources_.push_back(post(ref, CallRef::kPosted));
      targets_.push_back(takes_straight(plan_, step) ? place(targets_of(plan_, step)[0]) : post(ref, CallRef::kTaken));
    }
  }
  void add_fold(const Step& step, const StreamEntry& entry, bool posts) {
    const std::span<const Ref> sources = sources_of(plan_, step), targets = targets_of(plan_, step);
    for (const Ref& ref : sources) {
      const bool mail = ref.space == Space::kMailbox;
      sources_.push_back(!mail   ? place(ref)
                         : posts ? post(ref, CallRef::kTaken)
                                 : CallRef{entry.received, 0, 0, CallRef::kArrival});
    }
    for (const Ref& ref : targets) {
      const bool mail = ref.space == Space::kMailbox;
      if (!mail || !posts) targets_.push_back(!mail ? place(ref) : CallRef{entry.sent, 0, 0, CallRef::kDeparture});
    }
    const auto target_count = static_cast<uint8_t>(targets_.size());
    const ResolvedMove resolved = resolve(spec_, {.scaled = scaled_sources(spec_, sources),
                                                  .source_count = step.sources,
                                                  .target_count = target_count,
                                                  .finish = (step.flags & kFinish) != 0 && combine_finishes(spec_)});
    // In place a copy of a block to itself moves nothing.
    const bool stays = step.sources == 1 && target_count == 1 && sources_[0].place == CallRef::kAddress &&
                       targets_[0].place == CallRef::kAddress && sources_[0].offset == targets_[0].offset;
    add_pass(CallStep::kPass, stays && resolved.copies ? 0 : binder_.count(sources[0]), resolved);
  }
  // Adds a pass of sources_ and targets_, and clears both.
  void add_pass(CallStep::Kind kind, uint64_t count, const ResolvedMove& resolved) {
    if (bound_.passes == kMaxCallPasses || bound_.refs + sources_.size() + targets_.size() > kMaxCallRefs) {
      throw Exception(ErrorCode::kInternal, "a kernel takes fewer passes");
    }
    push({kind, 0, 0, 0, static_cast<uint16_t>(bound_.passes - first_pass_)});
    made_.passes[bound_.passes++] = {count,
                                     resolved.scaled,
                                     static_cast<uint16_t>(bound_.refs),
                                     static_cast<uint8_t>(sources_.size()),
                                     static_cast<uint8_t>(targets_.size()),
                                     resolved.copies ? kCopies : static_cast<uint8_t>(resolved.fold)};
    for (std::vector<CallRef>* const some : {&sources_, &targets_}) {
      for (const CallRef& ref : *some) made_.refs[bound_.refs++] = ref;
      some->clear();
    }
  }

  const Plan& plan_;
  const BlockPlace &input_, &output_;
  DeviceCall& made_;
  const Binder binder_;
  const CombineSpec spec_;
  std::vector<CallRef> sources_, targets_;  // of the pass that is being made
  const uint32_t first_pass_;
  Bound bound_;
};

}  // namespace

Bound bind_program(const CheckedCall& call, const Plan& plan, const StreamProgram& program, const BlockPlace& input,
                   const BlockPlace& output, DeviceCall& made, Bound behind) {
  Passes passes(call, plan, input, output, made, behind);
  made.by_posts = program.posts;
  for (size_t at = 0; at < program.entries.size();) at = passes.add(program, at);
  return passes.bound();
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
