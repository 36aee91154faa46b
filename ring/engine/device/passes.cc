#include "ring/engine/device/passes.h"

#include <algorithm>
#include <utility>

#include "kernels/resolve.h"
#include "ring/base/hash.h"
#include "rondo/error.h"

namespace rondo {
namespace {

static_assert(kMessageWords == kArrivedWord && kCallWords == kStreamWords && kMessageSlots == kStreamSlots);

constexpr uint64_t kGranuleBytes = 64;  // blocks of one buffer begin at whole lines of it

// A buffer of this rank in a call: finds its blocks, for references of a kernel.
class Buffer {
 public:
  Buffer(const std::vector<Extent>& blocks, const BufferPlace& place, const Touched::Blocks& touched, uint64_t element,
         uint64_t slice)
      : blocks_(blocks),
        place_(place),
        touched_(touched),
        staged_(place.staged != nullptr ? Touched::all(touched) : std::vector<int>{}),
        element_(element),
        slice_bytes_(slice * element) {}

  uint64_t count(uint32_t block) const { return blocks_[block].count; }
  // Blocks that pass through window 0.
  const std::vector<int>& staged() const { return staged_; }
  // In the caller's memory.
  CallRef of_caller(uint32_t block) const {
    return {reinterpret_cast<uintptr_t>(place_.data) + blocks_[block].offset * element_, 0, CallRef::kAddress};
  }
  // Where this rank's passes find it.
  CallRef of_own(uint32_t block) const {
    const auto at = std::ranges::find(staged_, static_cast<int>(block));
    if (at == staged_.end()) return of_caller(block);
    return {reinterpret_cast<uintptr_t>(place_.staged) + offset_of(at), 0, CallRef::kStaged};
  }
  // What the other ranks are told.
  DeviceCall::Buffer card() const {
    DeviceCall::Buffer card = {place_.window, staged_.empty() ? 0u : 1u, {}};
    for (size_t rank = 0; rank < touched_.size(); ++rank) {
      if (touched_[rank] < 0) continue;
      const auto at = std::ranges::find(staged_, touched_[rank]);
      const uint64_t lies = blocks_[static_cast<size_t>(touched_[rank])].offset * element_;
      card.at[rank] = place_.offset + (at == staged_.end() ? lies : offset_of(at));
    }
    return card;
  }

 private:
  uint64_t offset_of(std::vector<int>::const_iterator staged) const {
    return static_cast<uint64_t>(staged - staged_.begin()) * slice_bytes_;
  }

  const std::vector<Extent>& blocks_;
  const BufferPlace& place_;
  const Touched::Blocks& touched_;
  const std::vector<int> staged_;
  const uint64_t element_, slice_bytes_;
};

// What lies at `ref.peer`: its place says what that is.
CallRef of_peer(const Ref& ref, CallRef::Place place) { return {0, static_cast<uint8_t>(ref.peer), place}; }

uint16_t mask_of(const std::vector<int>& peers) {
  uint16_t mask = 0;
  for (const int peer : peers) mask = static_cast<uint16_t>(mask | 1 << peer);
  return mask;
}

// The blocks of a call in this rank's buffers.
Blocks blocks_of(const CheckedCall& call, const Plan& plan) {
  if (call.blocks) return *call.blocks;
  const auto even =
      even_blocks(call.count, plan.blocks, std::max<uint64_t>(1, kGranuleBytes / dtype_bytes(call.dtype)));
  return {even, even};
}

// Puts the passes of a program into a call.
class Passes {
 public:
  Passes(const CheckedCall& call, const Plan& plan, const Touched& touched, const BufferPlace& input,
         const BufferPlace& output, DeviceCall& made)
      : plan_(plan),
        made_(made),
        blocks_(blocks_of(call, plan)),
        input_(blocks_.input, input, touched.input, dtype_bytes(call.dtype), made.slice),
        output_(blocks_.output, output, touched.output, dtype_bytes(call.dtype), made.slice),
        spec_{call.dtype, call.op, call.scalar, static_cast<uint32_t>(plan.world)} {
    made.step_count = 0;
    made.arguments = {spec_.scalar, spec_.world};
    made.dtype = static_cast<uint8_t>(call.dtype);
    made.input = input_.card();
    made.output = output_.card();
    made.longest = 0;
    for (const auto* const blocks : {&blocks_.input, &blocks_.output}) {
      for (const Extent& block : *blocks) made.longest = std::max(made.longest, block.count);
    }
    made.uneven = call.uneven && call.shared_counts == 0;
    if (made.uneven) print_counts(touched);
  }

  // The step of entry `at` of the program, and of those behind it that are one with it; the next one.
  size_t add(const StreamProgram& program, size_t at) {
    const StreamEntry& entry = program.entries[at++];
    switch (entry.kind) {
      case StreamEntry::Kind::kSignal:
      case StreamEntry::Kind::kAwait:
        push({entry.kind == StreamEntry::Kind::kSignal ? CallStep::kSignal : CallStep::kAwait,
              static_cast<uint8_t>(entry.index), mask_of(entry.peers), static_cast<uint16_t>(entry.messages)});
        break;
      case StreamEntry::Kind::kPost:
        add_post(step_of(entry));
        break;
      case StreamEntry::Kind::kTake:
        for (add_taken(step_of(entry)); at < program.entries.size() && program.entries[at].kind == entry.kind; ++at) {
          add_taken(step_of(program.entries[at]));
        }
        add_pass(CallStep::kTake, count(step_of(entry)), {.copies = true});
        break;
      case StreamEntry::Kind::kPass:
        add_fold(step_of(entry), entry, program.posts);
        break;
    }
    return at;
  }

  // Copies the blocks that others touch to window 0, and back.
  void stage_input() {
    for (const int block : input_.staged()) stage(input_, static_cast<uint32_t>(block), &sources_, &targets_);
  }
  void store_output() {
    for (const int block : output_.staged()) stage(output_, static_cast<uint32_t>(block), &targets_, &sources_);
  }

  void add_next() { push({CallStep::kNext, 0, 0, 0}); }

 private:
  // What two ranks read of each other becomes part of their print, where only they know the counts.
  void print_counts(const Touched& touched) {
    std::array<uint64_t, kMaxDeviceRanks> read{};
    for (const Step& step : plan_.steps) {
      for (const Ref& ref : sources_of(plan_, step)) {
        if (ref.space == Space::kWindow) read[static_cast<size_t>(ref.peer)] = count(step);
      }
    }
    for (int r = 0; r < plan_.world; ++r) {
      const auto rank = static_cast<size_t>(r);
      uint64_t first = touched.input[rank] < 0 ? 0 : input_.count(static_cast<uint32_t>(touched.input[rank]));
      uint64_t second = read[rank];
      if (r < plan_.rank) std::swap(first, second);
      made_.prints[rank] = agreed_bits(Hash64().add(made_.prints[rank]).add(first).add(second).value());
    }
  }
  void push(const CallStep& step) {
    if (made_.step_count == kMaxCallSteps) throw Exception(ErrorCode::kInternal, "a kernel takes fewer steps");
    made_.steps[made_.step_count++] = step;
  }
  // Requires an entry that is no signal and no wait: their index is a word's.
  const Step& step_of(const StreamEntry& entry) const { return plan_.steps[entry.index]; }
  const Buffer& buffer_of(const Ref& own) const { return own.space == Space::kOutput ? output_ : input_; }
  static bool is_own(const Ref& ref) { return ref.space == Space::kInput || ref.space == Space::kOutput; }
  // Serves all references but messages.
  CallRef place(const Ref& ref) const {
    if (is_own(ref)) return buffer_of(ref).of_own(ref.block);
    return of_peer(ref, (ref.flags & kPeerOutput) != 0 ? CallRef::kOutput : CallRef::kInput);
  }
  // A step names a block of this rank's, which all others of it are as long as.
  uint64_t count(const Step& step) const {
    for (const auto refs : {sources_of(plan_, step), targets_of(plan_, step)}) {
      for (const Ref& ref : refs) {
        if (is_own(ref)) return buffer_of(ref).count(ref.block);
      }
    }
    throw Exception(ErrorCode::kInternal, "a step without a block of this rank's");
  }
  void stage(const Buffer& buffer, uint32_t block, std::vector<CallRef>* caller, std::vector<CallRef>* staged) {
    if (buffer.count(block) == 0) return;
    caller->push_back(buffer.of_caller(block));
    staged->push_back(buffer.of_own(block));
    const bool scales = &buffer == &input_ && spec_.op == Op::kPremulSum && combine_scales(spec_);
    add_pass(CallStep::kPass, buffer.count(block),
             resolve(spec_, {.scaled = scales, .source_count = 1, .target_count = 1, .finish = false}));
  }

  void add_post(const Step& step) {
    sources_.push_back(place(plan_.refs[step.first]));
    for (const Ref& ref : targets_of(plan_, step)) {
      if (ref.space == Space::kMailbox) targets_.push_back(of_peer(ref, CallRef::kPost));
    }
    add_pass(CallStep::kPost, count(step), {.copies = true});
  }
  void add_taken(const Step& step) {
    for (const Ref& ref : sources_of(plan_, step)) {
      if (ref.space != Space::kMailbox) continue;
      sources_.push_back(of_peer(ref, CallRef::kPosted));
      targets_.push_back(takes_straight(plan_, step) ? place(targets_of(plan_, step)[0])
                                                     : of_peer(ref, CallRef::kTaken));
    }
  }
  // A bit for each source that the fold scales. What each rank scales by its own factor is scaled where it is staged.
  uint64_t scaled_of(std::span<const Ref> sources) const {
    uint64_t scaled = 0;
    for (size_t i = 0; i < sources.size() && combine_scales(spec_); ++i) {
      const bool before = spec_.op == Op::kPremulSum && place(sources[i]).place != CallRef::kAddress;
      if ((sources[i].flags & kScale) != 0 && !before) scaled |= uint64_t{1} << i;
    }
    return scaled;
  }
  void add_fold(const Step& step, const StreamEntry& entry, bool posts) {
    const std::span<const Ref> sources = sources_of(plan_, step), targets = targets_of(plan_, step);
    for (const Ref& ref : sources) {
      const bool mail = ref.space == Space::kMailbox;
      sources_.push_back(!mail   ? place(ref)
                         : posts ? of_peer(ref, CallRef::kTaken)
                                 : CallRef{entry.received, 0, CallRef::kArrival});
    }
    for (const Ref& ref : targets) {
      const bool mail = ref.space == Space::kMailbox;
      if (!mail || !posts) targets_.push_back(!mail ? place(ref) : CallRef{entry.sent, 0, CallRef::kDeparture});
    }
    const auto target_count = static_cast<uint8_t>(targets_.size());
    const ResolvedMove resolved = resolve(spec_, {.scaled = scaled_of(sources),
                                                  .source_count = step.sources,
                                                  .target_count = target_count,
                                                  .finish = (step.flags & kFinish) != 0 && combine_finishes(spec_)});
    // In place a copy of a block to itself moves nothing.
    const bool stays = resolved.copies && target_count == 1 && is_own(sources[0]) && is_own(targets[0]) &&
                       buffer_of(sources[0]).of_caller(sources[0].block).offset ==
                           buffer_of(targets[0]).of_caller(targets[0].block).offset;
    add_pass(CallStep::kPass, stays ? 0 : count(step), resolved);
  }
  // Adds a pass of sources_ and targets_, and clears both.
  void add_pass(CallStep::Kind kind, uint64_t count, const ResolvedMove& resolved) {
    if (passes_ == kMaxCallPasses || refs_ + sources_.size() + targets_.size() > kMaxCallRefs) {
      throw Exception(ErrorCode::kInternal, "a kernel takes fewer passes");
    }
    push({kind, 0, 0, static_cast<uint16_t>(passes_)});
    made_.passes[passes_++] = {count,
                               resolved.scaled,
                               static_cast<uint16_t>(refs_),
                               static_cast<uint8_t>(sources_.size()),
                               static_cast<uint8_t>(targets_.size()),
                               resolved.copies ? kCopies : static_cast<uint8_t>(resolved.fold)};
    for (std::vector<CallRef>* const some : {&sources_, &targets_}) {
      for (const CallRef& ref : *some) made_.refs[refs_++] = ref;
      some->clear();
    }
  }

  const Plan& plan_;
  DeviceCall& made_;
  const Blocks blocks_;
  const Buffer input_, output_;
  const CombineSpec spec_;
  std::vector<CallRef> sources_, targets_;  // of the pass that is being made
  uint32_t passes_ = 0, refs_ = 0;          // made
};

}  // namespace

std::vector<int> Touched::all(const Blocks& blocks) {
  std::vector<int> all;
  for (const int block : blocks) {
    if (block >= 0 && std::ranges::find(all, block) == all.end()) all.push_back(block);
  }
  return all;
}

Touched touched_by_others(const std::vector<Plan>& plans, int rank) {
  Touched touched;
  touched.input.fill(-1);
  touched.output.fill(-1);
  for (const Plan& plan : plans) {
    if (plan.rank == rank) continue;
    for (const Ref& ref : plan.refs) {
      if (ref.space != Space::kWindow || ref.peer != rank) continue;
      int& block = ((ref.flags & kPeerOutput) != 0 ? touched.output : touched.input)[static_cast<size_t>(plan.rank)];
      if (block >= 0 && block != static_cast<int>(ref.block)) {
        throw Exception(ErrorCode::kInternal, "a rank touches several blocks of another one's buffer");
      }
      block = static_cast<int>(ref.block);
    }
  }
  return touched;
}

void bind_program(const CheckedCall& call, const Plan& plan, const StreamProgram& program, const Touched& touched,
                  const BufferPlace& input, const BufferPlace& output, DeviceCall& made) {
  Passes passes(call, plan, touched, input, output, made);
  made.by_posts = program.posts;
  made.by_messages = program.messages > 0;
  passes.stage_input();
  for (size_t at = 0; at < program.entries.size();) at = passes.add(program, at);
  passes.store_output();
  if (!program.posts) passes.add_next();
}

}  // namespace rondo
