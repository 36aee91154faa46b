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
//                        fences behind words of the host follow one another. What comes before the first wait of a
//                        call does not wait for it: it writes nothing but what the other ranks' lanes look at. A post
//                        may so have been read after its buffer was given back: who takes it finds a stop, too.
//   store_word           orders nothing: data and the count of calls are seen at once, or not.
#pragma once

#include "kernels/device/device_call.h"
#include "kernels/device/fold_pass.h"

namespace rondo {
namespace {

// What the threads of a lane share (shared memory of a block).
struct LaneState {
  uint32_t call, meeting, messages;  // meeting: slices up to this one, which words count
  uint32_t slice, slices;            // of this call; slices 0: not known yet
  bool failed, again;                // again: the ranks have met, and begin once more
  // The share of a pass: elements; bytes before it in the slice, and in the block.
  uint64_t count, in_slice, in_block;
  Pass pass;
};

// Up to 4 bytes of which the first 4 of `left` are, and back.
RONDO_INLINE uint32_t data_at(const Byte* at, uint64_t left) {
  if (left >= 4) return load_anywhere<uint32_t>(at, 0);
  uint32_t data = 0;
  for (uint64_t b = 0; b < left; ++b) data |= uint32_t(global(at)[b]) << (8 * b);
  return data;
}
RONDO_INLINE void put_data(Byte* at, uint32_t data, uint64_t left) {
  if (left >= 4) return store_anywhere(at, 0, data);
  for (uint64_t b = 0; b < left; ++b) global(at)[b] = Byte(data >> (8 * b));
}

// A Machine is a lane of a kernel:
//   thread()        which thread of how many
//   step()          this thread's number of the step, which takes no register while a pass runs
//   lane(), lanes(), element_bytes()
//   any(bool)       a barrier of the lane's threads: whether one of them says so
//   load_acquire, store_release, store_started (with a full fence behind), add_left, load_relaxed, store_relaxed: words
//   load_word, store_word: of 8 bytes, whole; load_data, store_data: data_at() and put_data() of own memory
//   reach(at, bytes): where those find it
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

  // A call in order: counts itself, runs the steps before the first wait, looks for a stop, runs the other steps, then
  // all of them for each further slice, and leaves. Without a status (a plain fold) there is no protocol, only the
  // pass.
  RONDO_INLINE void run() {
    if (call_.status != nullptr) count();
    if (call_.status == nullptr) state_.slice = 0, state_.slices = 1, state_.again = false;
    m_.step() = 0;
    if (call_.status != nullptr && !begin()) return leave(false);
    bool well = true;
    RONDO_ROLLED
    for (; well && m_.step() < call_.step_count; ++m_.step()) {
      const CallStep& step = call_.steps[m_.step()];
      bad_ = false;  // no register for it while a pass runs
      if (step.kind == CallStep::kSignal) {
        m_.any(false);  // what all threads have done before
        tell(step);
      } else if (step.kind == CallStep::kAwait) {
        well = await(step);
      } else if (step.kind == CallStep::kNext) {
        next_slice();
      } else {
        well = pass(step);
      }
    }
    leave(well);
  }

 private:
  RONDO_INLINE DeviceControl& control() { return *global(call_.controls[call_.rank]); }
  RONDO_INLINE DeviceControl::Lane& own() { return control().lanes[m_.lane()]; }
  RONDO_INLINE bool is_first() const { return thread_.index == 0; }
  RONDO_INLINE bool is_last() const { return thread_.index + 1 == thread_.count; }

  // Reads what the last call of this lane has left: relaxed, since a kernel of the rank may run that should not. In
  // device memory, since a graph replays the same arguments.
  RONDO_INLINE void count() {
    if (is_first()) {
      state_.call = m_.load_relaxed(&own().calls) + 1;
      state_.meeting = m_.load_relaxed(&own().slices) + 1;
      state_.messages = m_.load_relaxed(&own().messages);
      state_.slice = 0;
      state_.slices = call_.uneven ? 0 : slices_of(call_.longest);
      state_.again = false;
      state_.failed = m_.load_relaxed(&control().failed) != 0;
    }
    m_.any(false);
  }
  // The steps before the first wait, and then the look for a stop, for which they do not wait: it costs a round trip to
  // host memory.
  RONDO_INLINE bool begin() {
    RONDO_ROLLED
    for (; m_.step() < call_.step_count; ++m_.step()) {
      const CallStep& step = call_.steps[m_.step()];
      const bool posts = step.kind == CallStep::kPost;
      if (!posts && step.kind != CallStep::kSignal) break;
      if (state_.failed) continue;
      if (!posts) {
        tell(step);
      } else if (!find_share(step)) {
        return false;
      } else {
        post();
      }
    }
    bad_ = !enter();
    return !m_.any(bad_);
  }
  // The first lane says that the kernel has begun, then looks for a stop; the others wait for its verdict. By the last
  // thread of a lane: the first ones signal to peers.
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
  RONDO_INLINE uint32_t number() { return is_replay() ? m_.load_relaxed(&control().replays) + 1 : call_.number; }
  // The host has taken the memory back: nothing is touched from here on.
  RONDO_INLINE bool stopped() {
    return m_.load_acquire(&call_.status->stop) != 0 && !fail(CallFailure::kStopped, 0, 0);
  }

  RONDO_INLINE uint32_t value_of(const CallStep& step) const {
    return step.word < kMessageWords ? state_.meeting : state_.messages + step.index;
  }
  // Loaded each time, so that no register is taken for it while a pass runs.
  template <class T>
  RONDO_INLINE static T each_time(const T& value) {
    return *static_cast<const volatile T*>(&value);
  }
  RONDO_INLINE uint32_t slices_of(uint64_t longest) const {
    const uint64_t slice = each_time(call_.slice);
    return longest <= slice ? 1 : uint32_t((longest - 1) / slice + 1);
  }
  // The first wait of a call tells the ranks of each other; those of its other slices only order memory.
  RONDO_INLINE bool meets(const CallStep& step) const { return step.word == 0 && state_.slice == 0 && !state_.again; }
  RONDO_INLINE void next_slice() {
    if (state_.slice + 1 >= state_.slices) return;
    m_.any(false);  // all threads have come here
    if (is_first()) {
      ++state_.slice;
      ++state_.meeting;
      state_.messages += call_.messages;
    }
    begin_again();
  }
  RONDO_INLINE void begin_again() {
    m_.step() = ~uint32_t{0};  // 0 is the next one
    m_.any(false);
  }

  RONDO_INLINE uint32_t turn() const { return state_.call % 2; }
  // A word of a post: 4 bytes of data below, the call's count above. One store of 8 bytes shows both or neither.
  RONDO_INLINE uint64_t word_of(uint32_t data) const { return data | uint64_t(state_.call) << 32; }
  RONDO_INLINE bool is_of_call(uint64_t word) const { return uint32_t(word >> 32) == state_.call; }

  // One thread a peer. Word 0 is a lane's arrival: fingerprint and buffers go before it, and its release orders them.
  RONDO_INLINE void tell(const CallStep& step) {
    if (meets(step) && (state_.call + kRenewedCalls / 2) % kRenewedCalls < 2) renew(step.peers);
    RONDO_ROLLED
    for (uint32_t rank = uint32_t(thread_.index); rank < call_.world; rank += uint32_t(thread_.count)) {
      if ((step.peers >> rank & 1) == 0) continue;
      LaneMail& mail = global(call_.controls[rank])->lanes[m_.lane()].from[call_.rank];
      if (meets(step)) {
        m_.store_word(&mail.prints[turn()][0], word_of(uint32_t(call_.prints[rank])));
        m_.store_word(&mail.prints[turn()][1], word_of(uint32_t(call_.prints[rank] >> 32)));
        if (call_.by_posts) continue;
        store_card(mail.cards[turn()].input, call_.input, rank);
        store_card(mail.cards[turn()].output, call_.output, rank);
        m_.store_word(&mail.cards[turn()].longest, call_.longest);
      }
      m_.store_release(&mail.words[step.word], value_of(step));
    }
  }
  RONDO_INLINE void store_card(BlockCard& to, const DeviceCall::Buffer& from, uint32_t rank) {
    m_.store_word(&to.window, from.window);
    m_.store_word(&to.offset, from.at[rank]);
    m_.store_word(&to.staged, from.staged);
  }
  // Overwrites all words of posts, so that none of 2^32 calls ago looks like one of this call. By the threads that
  // write the words in posts, too, so that these come behind.
  RONDO_INLINE void renew(uint32_t peers) {
    const uint32_t words = uint32_t(call_.post_bytes) / kWordData;
    RONDO_ROLLED
    for (uint32_t rank = 0; rank < call_.world; ++rank) {
      if ((peers >> rank & 1) == 0) continue;
      auto* const to = m_.reach(reinterpret_cast<uint64_t*>(post_at(rank, call_.rank)), words * sizeof(uint64_t));
      RONDO_ROLLED
      for (uint32_t w = uint32_t(thread_.index); w < words; w += uint32_t(thread_.count)) {
        m_.store_word(to + w, word_of(0) - (uint64_t{2} << 32));
      }
    }
  }

  // One thread a peer; any() then makes the lane wait for all of them.
  RONDO_INLINE bool await(const CallStep& step) {
    const bool is_meeting = meets(step);
    RONDO_ROLLED
    for (uint32_t rank = uint32_t(thread_.index); rank < call_.world && !bad_; rank += uint32_t(thread_.count)) {
      if ((step.peers >> rank & 1) == 0) continue;
      bad_ = is_meeting && !same_call(rank);
      if (bad_ || (step.word == 0 && call_.by_posts)) continue;
      bad_ = !await_word(&own().from[rank].words[step.word], value_of(step));
    }
    if (m_.any(bad_)) return false;
    // The end of a call by posts is not held up by this: it comes at once.
    if (is_meeting && !call_.by_posts && m_.lane() == 0 && is_first() && !is_replay())
      m_.store_release(&call_.status->met, call_.number);
    if (is_meeting && state_.slices != 1 && !call_.by_messages) choose_slices();
    return true;
  }
  // The call is one slice if no rank has a staged buffer. All ranks see the same cards, so all decide alike. What comes
  // before the first wait is of the first slice: it stages, where there is anything to stage. In an uneven call nothing
  // runs before it; if a rank stages, all begin again, and know how many slices there are.
  RONDO_INLINE void choose_slices() {
    if (is_first()) {
      uint64_t staged = call_.input.staged | call_.output.staged, longest = call_.longest;
      RONDO_ROLLED
      for (uint32_t rank = 0; rank < call_.world; ++rank) {
        if (rank == call_.rank) continue;
        const DeviceCard& card = own().from[rank].cards[turn()];
        staged |= m_.load_word(&card.input.staged) | m_.load_word(&card.output.staged);
        if (const uint64_t other = m_.load_word(&card.longest); other > longest) longest = other;
      }
      state_.slices = staged == 0 ? 1 : slices_of(longest);
      state_.again = call_.uneven && staged != 0;
      if (state_.again) ++state_.meeting;
    }
    m_.any(false);
    if (state_.again) begin_again();
  }
  // Counts wrap around, so they are compared by their difference.
  RONDO_INLINE bool await_word(const uint32_t* word, uint32_t value) {
    return await_until([&] { return int32_t(m_.load_acquire(word) - value) >= 0; });
  }
  // Looks until the condition holds, and gives up where the rank has failed, the host has stopped the kernels, or the
  // limit of time is over. The clock and the host's word are far away, so they are asked rarely.
  template <class There>
  RONDO_INLINE bool await_until(There there) {
    uint64_t begin = 0, next_stop = 0;
    RONDO_ROLLED
    for (uint32_t looks = 1; !there(); ++looks) {
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
  // Compares the fingerprints before any memory of the peer is touched: ranks that make different calls end with an
  // error that names both.
  RONDO_INLINE bool same_call(uint32_t rank) {
    const uint64_t* const prints = own().from[rank].prints[turn()];
    uint64_t low = 0, high = 0;
    const bool there = await_until([&] {
      low = m_.load_word(&prints[0]);
      high = m_.load_word(&prints[1]);
      return is_of_call(low) && is_of_call(high);
    });
    const uint64_t found = uint32_t(low) | high << 32;
    return there && (found == call_.prints[rank] || fail(CallFailure::kOtherCall, rank, found));
  }

  RONDO_INLINE uint64_t cut(uint64_t count, const uint64_t* length) const {
    const uint64_t most = m_.load_word(length) / m_.element_bytes();
    return count < most ? count : most;
  }
  // This lane's share of the slice of a pass: whole lines. In the last slice, too, it is a share of a full one: where
  // slices are staged, no lane comes to where another one may still be in the slice before. By one thread, whose
  // registers the others do not take.
  RONDO_INLINE void set_share(uint64_t count) {
    const bool is_cut = state_.slices > 1;
    const uint64_t* const length = call_.status == nullptr ? each_time(call_.length) : nullptr;
    const uint64_t slice = is_cut ? each_time(call_.slice) : 0, whole = length == nullptr ? count : cut(count, length);
    const uint64_t before = state_.slice * slice;
    const uint64_t left = state_.slices > 0 && whole > before ? whole - before : 0;
    const uint64_t all = is_cut && left > slice ? slice : left;
    const uint64_t line = kLineBytes / m_.element_bytes(), lanes = m_.lanes();
    const uint64_t each = ((is_cut ? slice : all) + lanes - 1) / lanes;
    const uint64_t share = (each + line - 1) / line * line;
    const uint64_t first = share * m_.lane() < all ? share * m_.lane() : all;
    state_.count = all - first < share ? all - first : share;
    state_.in_slice = first * m_.element_bytes();
    state_.in_block = before * m_.element_bytes() + state_.in_slice;
  }
  // Where the share lies. False: nowhere.
  RONDO_INLINE bool find_share(const CallStep& step) {
    m_.any(false);  // the pass before has been run
    const CallPass& given = call_.passes[step.index];
    if (is_first()) set_share(given.count);
    m_.any(false);
    const uint64_t element = m_.element_bytes(), count = state_.count;
    const bool copies = given.fold == kCopies;
    const uint32_t refs = count == 0 ? 0 : uint32_t(given.source_count) + given.target_count;
    DeviceFold& fold = state_.pass.fold;
    RONDO_ROLLED
    for (uint32_t i = uint32_t(thread_.index); i < refs; i += uint32_t(thread_.count)) {
      const bool source = i < given.source_count;
      uintptr_t address = find(call_.refs[given.first_ref + i], count * element);
      if (address == 0) bad_ = true;
      if (address != 0 && step.kind != CallStep::kPass) {
        address = reinterpret_cast<uintptr_t>(m_.reach(reinterpret_cast<Byte*>(address), count * element));
      }
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
    return !m_.any(bad_);
  }
  RONDO_INLINE bool pass(const CallStep& step) {
    if (!find_share(step)) return false;
    if (state_.pass.fold.count == 0) return true;
    if (step.kind == CallStep::kTake) return take();
    if (is_first()) align_pass(state_.pass, state_.pass.fold.fold == kCopies ? 1 : m_.element_bytes());
    m_.any(false);
    m_.run(state_.pass);
    return true;
  }

  // Sends data with its count in each word, so that no fence and no signal is needed: one way across the link.
  RONDO_INLINE void post() {
    const DeviceFold& fold = state_.pass.fold;
    const uint32_t bytes = uint32_t(fold.count);
    const Byte* const from = static_cast<const Byte*>(fold.sources[0]);
    RONDO_ROLLED
    for (uint32_t at = uint32_t(thread_.index) * kWordData; at < bytes; at += uint32_t(thread_.count) * kWordData) {
      const uint64_t word = word_of(m_.load_data(from + at, bytes - at));
      RONDO_ROLLED
      for (uint32_t i = 0; i < fold.target_count; ++i) {
        m_.store_word(static_cast<uint64_t*>(fold.targets[i]) + at / kWordData, word);
      }
    }
  }
  // A thread takes a word of kTakenAtOnce ranks at once. Words of other ranks follow those of the first ones.
  RONDO_INLINE bool take() {
    const DeviceFold& fold = state_.pass.fold;
    const uint32_t bytes = uint32_t(fold.count), end = (bytes + kWordData - 1) / kWordData * kWordData;
    uint32_t at = uint32_t(thread_.index) * kWordData, first = 0;
    RONDO_ROLLED
    while (!bad_) {
      RONDO_ROLLED
      for (; at >= end && first < fold.source_count; first += kTakenAtOnce) at -= end;
      if (first >= fold.source_count) break;
      take(at, first, bytes - at);
      at += uint32_t(thread_.count) * kWordData;
    }
    return !m_.any(bad_);
  }
  RONDO_INLINE void take(uint32_t at, uint32_t first, uint32_t left) {
    const DeviceFold& fold = state_.pass.fold;
    const uint32_t many = fold.source_count - first;
    uint64_t words[kTakenAtOnce];
    bad_ = !await_until([&] {
      bool there = true;
      RONDO_UNROLL
      for (uint32_t i = 0; i < kTakenAtOnce; ++i) {
        words[i] = word_of(0);
        if (i < many) words[i] = m_.load_word(static_cast<const uint64_t*>(fold.sources[first + i]) + at / kWordData);
      }
      RONDO_UNROLL
      for (uint32_t i = 0; i < kTakenAtOnce; ++i) there = there && is_of_call(words[i]);
      return there;
    });
    RONDO_UNROLL
    for (uint32_t i = 0; i < kTakenAtOnce; ++i) {
      if (!bad_ && i < many) m_.store_data(static_cast<Byte*>(fold.targets[first + i]) + at, uint32_t(words[i]), left);
    }
  }

  // The post of `from` at `rank`, of this lane and call.
  RONDO_INLINE Byte* post_at(uint32_t rank, uint32_t from) {
    const uint64_t place = (uint64_t(m_.lane()) * 2 + turn()) * call_.world + from;
    return static_cast<Byte*>(call_.posts[rank]) + place * kPostedBytes * call_.post_bytes;
  }

  // Where the share lies; 0: nowhere.
  RONDO_INLINE uintptr_t find(const CallRef& ref, uint64_t bytes) {
    if (ref.place == CallRef::kStaged) return uintptr_t(ref.offset) + state_.in_slice;
    if (ref.place == CallRef::kAddress) return uintptr_t(ref.offset) + state_.in_block;
    if (ref.place == CallRef::kArrival || ref.place == CallRef::kDeparture) {
      // A lane has a part of each slot, so that none waits for another one.
      const uint64_t part = call_.slot_bytes / m_.lanes() / kLineBytes * kLineBytes;
      if (bytes > part) return fail(CallFailure::kNoMemory, call_.rank, 0), uintptr_t(0);
      const uint64_t slot = (state_.messages + ref.offset) % kMessageSlots;
      void* const slots = ref.place == CallRef::kArrival ? call_.arrivals : call_.departures;
      return reinterpret_cast<uintptr_t>(slots) + slot * call_.slot_bytes + m_.lane() * part;
    }
    if (ref.place >= CallRef::kPosted) {
      if (bytes > call_.post_bytes) return fail(CallFailure::kNoMemory, call_.rank, 0), uintptr_t(0);
      if (ref.place == CallRef::kPosted) return reinterpret_cast<uintptr_t>(post_at(call_.rank, ref.rank));
      if (ref.place == CallRef::kPost) return reinterpret_cast<uintptr_t>(post_at(ref.rank, call_.rank));
      const uint64_t taken = 2 * kPostedBytes * kMostPostBytes * call_.world;
      return reinterpret_cast<uintptr_t>(call_.posts[call_.rank]) + taken +
             (uint64_t(m_.lane()) * call_.world + ref.rank) * call_.post_bytes;
    }
    const DeviceCard& card = own().from[ref.rank].cards[turn()];
    const BlockCard& block = ref.place == CallRef::kOutput ? card.output : card.input;
    if (const uint64_t index = m_.load_word(&block.window); index < call_.window_count) {
      const DeviceWindow& window = global(call_.windows)[index * call_.world + ref.rank];
      const uint64_t in_block = m_.load_word(&block.staged) != 0 ? state_.in_slice : state_.in_block;
      const uint64_t offset = m_.load_word(&block.offset) + in_block;
      if (window.data != nullptr && offset <= window.bytes && bytes <= window.bytes - offset) {
        return reinterpret_cast<uintptr_t>(window.data) + offset;
      }
    }
    return fail(CallFailure::kNoMemory, ref.rank, 0), uintptr_t(0);
  }

  // Only the first failure is reported. A replay has no number: it fails the call after the last one that has passed.
  // Returns false.
  RONDO_INLINE bool fail(CallFailure failure, uint32_t rank, uint64_t fingerprint) {
    if (!m_.claim(&control().failed) || call_.status == nullptr) return false;
    global(call_.status)->rank = rank;
    global(call_.status)->fingerprint = fingerprint;
    global(call_.status)->failed_call = is_replay() ? m_.load_acquire(&call_.status->passed) + 1 : call_.number;
    m_.store_release(&call_.status->failure, uint32_t(failure));
    return false;
  }

  // The last lane to leave opens the kernel for the next call and says to the host that this one has passed.
  RONDO_INLINE void leave(bool well) {
    m_.any(false);
    if (call_.status == nullptr || !is_first()) return;
    if (well) {
      m_.store_relaxed(&own().calls, state_.call);
      m_.store_relaxed(&own().slices, state_.meeting);
      m_.store_relaxed(&own().messages, state_.messages + call_.messages);
    }
    if (m_.add_left(&control().left) + 1 != m_.lanes()) return;
    m_.store_relaxed(&control().left, 0);
    m_.store_relaxed(&control().entered, 0);
    const uint32_t passed = number();
    if (is_replay()) m_.store_relaxed(&control().replays, passed);
    m_.store_release(is_replay() ? &call_.status->replays_passed : &call_.status->passed, passed);
  }

  static constexpr uint64_t kLineBytes = 64;
  static constexpr uint32_t kWordData = 4, kTakenAtOnce = 4;

  Machine& m_;
  const DeviceCall& call_;
  LaneState& state_;
  const ThreadPlace thread_;
  bool bad_ = false;
};

}  // namespace
}  // namespace rondo
