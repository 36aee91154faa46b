// What one lane of a call's kernel does: a block of a GPU, or a thread of a test. It meets the same lane of the other
// ranks, runs its share of every pass, and meets them again; so no lane waits for another one of its own rank.
//
// Orderings, each of which tests weaken in turn:
//   store_release(word)  pairs with load_acquire of the rank that owns the word: it sees the card, and what the passes
//                        before have written; and who writes after it has seen the word writes after what was read.
//   leave_lane           acquires and releases: the last lane of a kernel says that all of them are over.
//   enter                `started` is stored before `stop` is loaded, and a host that has set `stop` looks at `started`
//                        afterwards (sequentially consistent): it sees the kernel, or the kernel sees the stop. The
//                        first lane does so, and tells the others (`entered`): 200 of them would take 200 us, since
//                        fences behind words of the host follow one another. The first signal of a call does not wait
//                        for it: it touches nothing but what the other ranks' lanes look at, unless `failed` says so.
#pragma once

#include "kernels/device/device_call.h"
#include "kernels/device/fold_pass.h"

namespace rondo {
namespace {

// Of the threads of a lane together (shared memory of a block).
struct LaneState {
  uint32_t call, messages;
  Pass pass;
};

// A Machine is a lane of a kernel:
//   thread()        which thread of how many
//   lane(), lanes(), element_bytes()
//   any(bool)       a barrier of the lane's threads: whether one of them says so
//   load_acquire, store_release, store_started (with a full fence behind), add_left, load_relaxed, store_relaxed: words
//   claim(word)     sets it to 1; false: it was not 0
//   now()           nanoseconds; kBetweenClocks: looks at a word for one of these; kBetweenStopsNs: between looks for a
//                   stop
//   pause()         between two looks at a word
//   run(pass)       the thread's part of a fold
template <class Machine>
class CallLane {
 public:
  RONDO_INLINE CallLane(Machine& machine, const DeviceCall& call, LaneState& state)
      : m_(machine), call_(call), state_(state), thread_(machine.thread()) {}

  RONDO_INLINE void run() {
    uint32_t s = 0;
    if (call_.status != nullptr) {
      count();
      if (call_.step_count > 0 && call_.steps[0].kind == CallStep::kSignal) s = 1;
      if (s == 1 && m_.load_relaxed(&control().failed) == 0) tell(call_.steps[0]);
      bad_ = !enter();
    }
    if (m_.any(bad_)) return leave(false);
    RONDO_ROLLED
    for (; s < call_.step_count; ++s) {
      const CallStep& step = call_.steps[s];
      bool well = true;
      if (step.kind == CallStep::kSignal) signal(step);
      if (step.kind == CallStep::kAwait) well = await(step);
      if (step.kind == CallStep::kPass) well = pass(call_.passes[step.pass]);
      if (!well) return leave(false);
    }
    leave(true);
  }

 private:
  RONDO_INLINE DeviceControl& control() { return *global(call_.controls[call_.rank]); }
  RONDO_INLINE DeviceControl::Lane& own() { return control().lanes[m_.lane()]; }
  RONDO_INLINE bool is_first() const { return thread_.index == 0; }
  RONDO_INLINE bool is_last() const { return thread_.index + 1 == thread_.count; }

  RONDO_INLINE void count() {
    if (is_first()) {
      state_.call = own().calls + 1;
      state_.messages = own().messages;
    }
    m_.any(false);
  }
  RONDO_INLINE bool enter() {
    if (!is_last()) return true;
    if (m_.lane() == 0) {
      if (!m_.claim(&control().entered)) return fail(CallFailure::kOverlap, 0, 0);
      m_.store_started(is_replay() ? &call_.status->replays_started : &call_.status->started, number());
      const bool well = m_.load_relaxed(&control().failed) == 0 && !stopped();
      m_.store_release(&control().entered, well ? DeviceControl::kWell : DeviceControl::kEnds);
      return well;
    }
    return await_word(&control().entered, DeviceControl::kWell) &&
           m_.load_acquire(&control().entered) == DeviceControl::kWell;
  }
  RONDO_INLINE bool is_replay() const { return call_.number == 0; }
  RONDO_INLINE uint32_t number() { return is_replay() ? control().replays + 1 : call_.number; }
  RONDO_INLINE bool stopped() {
    return m_.load_acquire(&call_.status->stop) != 0 && !fail(CallFailure::kStopped, 0, 0);
  }

  RONDO_INLINE uint32_t value_of(const CallStep& step) const {
    return step.word < kMessageWords ? state_.call : state_.messages + step.message;
  }

  RONDO_INLINE void signal(const CallStep& step) {
    m_.any(false);  // what all threads have done before
    tell(step);
  }
  RONDO_INLINE void tell(const CallStep& step) {
    RONDO_ROLLED
    for (uint32_t rank = uint32_t(thread_.index); rank < call_.world; rank += uint32_t(thread_.count)) {
      if ((step.peers >> rank & 1) == 0) continue;
      LaneMail& mail = global(call_.controls[rank])->lanes[m_.lane()].from[call_.rank];
      if (step.word == 0) mail.cards[state_.call % 2] = call_.card;
      m_.store_release(&mail.words[step.word], value_of(step));
    }
  }

  RONDO_INLINE bool await(const CallStep& step) {
    RONDO_ROLLED
    for (uint32_t rank = uint32_t(thread_.index); rank < call_.world && !bad_; rank += uint32_t(thread_.count)) {
      if ((step.peers >> rank & 1) == 0) continue;
      bad_ = !await_word(&own().from[rank].words[step.word], value_of(step)) || (step.word == 0 && !same_call(rank));
    }
    if (m_.any(bad_)) return false;
    if (step.word == 0 && m_.lane() == 0 && is_first() && !is_replay())
      m_.store_release(&call_.status->met, call_.number);
    return true;
  }
  RONDO_INLINE bool await_word(const uint32_t* word, uint32_t value) {
    uint64_t begin = 0, next_stop = 0;
    RONDO_ROLLED
    for (uint32_t looks = 1; int32_t(m_.load_acquire(word) - value) < 0; ++looks) {
      if (m_.load_relaxed(&control().failed) != 0) return false;
      if (looks % Machine::kBetweenClocks == 0) {
        const uint64_t now = m_.now();
        if (begin == 0) begin = now, next_stop = now + Machine::kBetweenStopsNs;
        if (now >= next_stop) {
          if (stopped()) return false;
          next_stop = now + Machine::kBetweenStopsNs;
        }
        if (now - begin > call_.limit_ns) return fail(CallFailure::kLate, 0, 0);
      }
      m_.pause();
    }
    return true;
  }
  RONDO_INLINE const DeviceCard& card_of(uint32_t rank) { return own().from[rank].cards[state_.call % 2]; }
  RONDO_INLINE bool same_call(uint32_t rank) {
    const uint64_t found = card_of(rank).fingerprint;
    return found == call_.card.fingerprint || fail(CallFailure::kOtherCall, rank, found);
  }

  // This lane's share of a pass: whole lines of its first source.
  RONDO_INLINE bool pass(const CallPass& given) {
    const uint64_t element = m_.element_bytes(), line = kLineBytes / element;
    const uint64_t lanes = m_.lanes(), each = (given.count + lanes - 1) / lanes;
    const uint64_t share = (each + line - 1) / line * line;
    const uint64_t first = share * m_.lane() < given.count ? share * m_.lane() : given.count;
    const uint64_t count = given.count - first < share ? given.count - first : share;
    const bool copies = given.fold == kCopies;
    const uint32_t refs = count == 0 ? 0 : uint32_t(given.source_count) + given.target_count;
    DeviceFold& fold = state_.pass.fold;
    m_.any(false);  // the pass before has been run
    RONDO_ROLLED
    for (uint32_t i = uint32_t(thread_.index); i < refs; i += uint32_t(thread_.count)) {
      const bool source = i < given.source_count;
      const uintptr_t address = find(call_.refs[given.first_ref + i], first * element, count * element);
      if (address == 0) bad_ = true;
      if (source) fold.sources[i] = reinterpret_cast<const void*>(address);
      if (!source) fold.targets[i - given.source_count] = reinterpret_cast<void*>(address);
    }
    if (is_first()) {
      fold.count = copies ? count * element : count;
      fold.scaled = given.scaled;
      fold.arguments = call_.arguments;
      fold.source_count = given.source_count;
      fold.target_count = given.target_count;
      fold.dtype = copies ? uint8_t(DType::kUint8) : call_.dtype;
      fold.fold = given.fold;
    }
    if (m_.any(bad_)) return false;
    if (count == 0) return true;
    if (is_first()) align_pass(state_.pass, copies ? 1 : element);
    m_.any(false);
    m_.run(state_.pass);
    return true;
  }

  // Where this lane's share lies; 0: nowhere.
  RONDO_INLINE uintptr_t find(const CallRef& ref, uint64_t before, uint64_t bytes) {
    if (ref.place == CallRef::kAddress) return uintptr_t(ref.offset) + before;
    if (ref.place == CallRef::kArrival || ref.place == CallRef::kDeparture) {
      // A lane has a part of each slot, so that none waits for another one.
      const uint64_t part = call_.slot_bytes / m_.lanes() / kLineBytes * kLineBytes;
      if (bytes > part) return fail(CallFailure::kNoMemory, call_.rank, 0), uintptr_t(0);
      const uint64_t slot = (state_.messages + ref.offset) % kMessageSlots;
      void* const slots = ref.place == CallRef::kArrival ? call_.arrivals : call_.departures;
      return reinterpret_cast<uintptr_t>(slots) + slot * call_.slot_bytes + m_.lane() * part;
    }
    const DeviceCard& card = card_of(ref.rank);
    const BufferCard& buffer = ref.place == CallRef::kOutput ? card.output : card.input;
    if (buffer.window < call_.window_count) {
      const DeviceWindow& window = global(call_.windows)[uint64_t(buffer.window) * call_.world + ref.rank];
      const uint64_t offset = buffer.offset + ref.block * buffer.pitch + ref.offset + before;
      if (window.data != nullptr && offset <= window.bytes && bytes <= window.bytes - offset) {
        return reinterpret_cast<uintptr_t>(window.data) + offset;
      }
    }
    return fail(CallFailure::kNoMemory, ref.rank, 0), uintptr_t(0);
  }

  // The first failure is the one that is told. False.
  RONDO_INLINE bool fail(CallFailure failure, uint32_t rank, uint64_t fingerprint) {
    if (!m_.claim(&control().failed) || call_.status == nullptr) return false;
    global(call_.status)->rank = rank;
    global(call_.status)->fingerprint = fingerprint;
    m_.store_release(&call_.status->failure, uint32_t(failure));
    return false;
  }

  RONDO_INLINE void leave(bool well) {
    m_.any(false);
    if (call_.status == nullptr || !is_first()) return;
    if (well) {
      own().calls = state_.call;
      own().messages = state_.messages + call_.messages;
    }
    if (m_.add_left(&control().left) + 1 != m_.lanes()) return;
    m_.store_relaxed(&control().left, 0);
    m_.store_relaxed(&control().entered, 0);
    const uint32_t passed = number();
    if (is_replay()) control().replays = passed;
    m_.store_release(is_replay() ? &call_.status->replays_passed : &call_.status->passed, passed);
  }

  static constexpr uint64_t kLineBytes = 64;

  Machine& m_;
  const DeviceCall& call_;
  LaneState& state_;
  const ThreadPlace thread_;
  bool bad_ = false;
};

}  // namespace
}  // namespace rondo
