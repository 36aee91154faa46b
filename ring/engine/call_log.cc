#include "ring/engine/call_log.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace rondo {
namespace {

// Adds the calls of a record that come before the sequence `end`. The opening of the communicator is no call of
// the program's.
template <typename Record>
void count(std::array<CommunicatorStatus::Calls, kCollectives>& made, const Record& record, uint64_t end) {
  if (record.first == kMeetingSequence) return;
  CommunicatorStatus::Calls& calls = made[static_cast<size_t>(record.call.collective)];
  calls.number += end - record.first;
  calls.bytes += (end - record.first) * record.bytes;
}

}  // namespace

// The newest record ends before this call, so its calls can be counted.
void CallLog::record(uint64_t sequence, uint64_t kind, const CheckedCall& call) {
  last_kind_ = kind;
  std::lock_guard lock(mutex_);
  if (recorded_ > 0) count(made_, newest(), sequence);
  if (recorded_ == records_.size() && recorded_ < kRemembered) remember_more();
  records_[recorded_++ % records_.size()] = {sequence, kind, call.total_bytes(world_), call};
  current_.store(sequence, std::memory_order_release);
}

// Without memory for it the log stays as long as it is.
void CallLog::remember_more() {
  try {
    records_.emplace_back();
  } catch (const std::bad_alloc&) {
  }
}

void CallLog::finished(uint64_t sequence) {
  if (sequence > finished_.load(std::memory_order_relaxed)) finished_.store(sequence, std::memory_order_release);
}

CallLog::MessageWait::MessageWait(CallLog& log, int peer, std::string text, std::chrono::steady_clock::time_point since)
    : log_(log), peer_(peer), text_(std::move(text)), since_(since) {
  std::lock_guard lock(log_.mutex_);
  log_.message_waits_.push_back(*this);
}

CallLog::MessageWait::~MessageWait() {
  std::lock_guard lock(log_.mutex_);
  log_.message_waits_.remove(*this);
}

// One thread wins the exchange, and is the first. threads_ never goes back: that a thread will make no more calls is
// not known.
void CallLog::note_other_thread(std::thread::id self) {
  std::thread::id first = thread_.load(std::memory_order_relaxed);
  if (first == std::thread::id() && thread_.compare_exchange_strong(first, self)) return;
  if (first != self) threads_.store(true);
}

// The stored sequence must be the one asked for: a slot is used again after kRemembered calls.
uint64_t CallLog::route(uint64_t sequence) const {
  const uint64_t word = routes_[sequence % kRemembered].load(std::memory_order_relaxed);
  if (((word >> 32) & kSequenceMask) != (sequence & kSequenceMask)) return 0;
  return ((word >> 56) << 32) | (word & 0xffffffff);
}

// Under the lock. nullptr: not called yet, or too long ago.
const CallLog::Record* CallLog::record_of(uint64_t sequence) const {
  const uint64_t oldest = recorded_ - std::min<uint64_t>(recorded_, records_.size());
  for (uint64_t i = recorded_; i > oldest; --i) {
    const Record& record = records_[(i - 1) % records_.size()];
    if (record.first <= sequence) return &record;
  }
  return nullptr;
}

void CallLog::describe(CommunicatorStatus& status) const {
  std::lock_guard lock(mutex_);
  const uint64_t current = current_.load(std::memory_order_acquire);
  status.sequence = std::min(current, last_finished() + 1);
  status.made = made_;
  if (recorded_ > 0) count(status.made, newest(), std::max(current + 1, newest().first));
  if (const Record* record = record_of(status.sequence)) {
    status.collective = record->call.collective;
    status.dtype = record->call.dtype;
    status.bytes = record->bytes;
  }
}

// The answer to a rank that asks about call `sequence`: whether this rank has made it, in which form, and what
// it does in messages meanwhile.
CallState CallLog::state(uint64_t sequence) const {
  std::lock_guard lock(mutex_);
  CallState state;
  state.current = current_.load(std::memory_order_acquire);
  if (const Record* record = sequence <= state.current ? record_of(sequence) : nullptr) {
    state.fingerprint = agreed_bits(fingerprint_of(record->kind, sequence));
    state.text = describe_call(record->call);
    state.finished = sequence <= finished_;
    state.route = route(sequence);
    if (!state.finished) state.since_ms = since_ms(sequence);
  }
  state.p2p_looks = p2p_looks_.load(std::memory_order_relaxed);
  if (const MessageWait* longest = message_waits_.front()) {
    state.in_p2p = true;
    // No thread of several says alone for whom this rank waits.
    state.p2p_peer = longest->next == nullptr ? longest->peer_ : -1;
    state.p2p_text = longest->text_;
    const auto waited = std::chrono::steady_clock::now() - longest->since_;
    if (sequence == kMessagesSequence) {
      state.since_ms = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count());
    }
  }
  state.threads = threads_;
  return state;
}

std::string CallLog::waits_in() const {
  std::lock_guard lock(mutex_);
  if (const MessageWait* longest = message_waits_.front()) return longest->text_;
  const uint64_t sequence = lasting_.load(std::memory_order_acquire);
  const Record* const record = sequence > last_finished() ? record_of(sequence) : nullptr;
  return record != nullptr ? describe_call(record->call) : std::string();
}

// 0 where the call was over at once, or another one has begun to last since.
uint64_t CallLog::since_ms(uint64_t sequence) const {
  if (lasting_.load(std::memory_order_acquire) != sequence) return 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return static_cast<uint64_t>(std::max<int64_t>(now_ms - lasting_since_ms_.load(std::memory_order_relaxed), 0));
}

uint64_t CallLog::last_finished() const { return finished_.load(std::memory_order_acquire); }

}  // namespace rondo
