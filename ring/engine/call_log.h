#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ring/engine/call/call.h"
#include "ring/engine/communicator_status.h"
#include "transport/fabric.h"

namespace rondo {

// What this rank has called lately on one communicator, for the others' question why an operation does not move.
// Calls of one kind in a row are one record: writing costs a store where a call is equal to the last, else an
// uncontended lock and a copy of a few words; the text is made on request. Any thread, unless said otherwise.
class CallLog {
 public:
  // Before the first call.
  void of_world(int world) { world_ = world; }
  // `kind`: fingerprint_of(kind, sequence) is the call's fingerprint; equal kinds are equal calls. Under the submission
  // lock.
  void called(uint64_t sequence, uint64_t kind, const CheckedCall& call) {
    // Where each pair knows only its own counts, the kind does not say all.
    if (kind != last_kind_ || call.uneven) return record(sequence, kind, call);
    current_.store(sequence, std::memory_order_release);
  }
  // --- one thread at a time: the holder of the lease
  // The call runs by this route, under this version of the table of routes.
  void took(uint64_t sequence, Algorithm algorithm, uint64_t version) {
    const uint64_t of = (uint64_t{static_cast<uint8_t>(algorithm)} << 24) | (sequence & kSequenceMask);
    routes_[sequence % kRemembered].store((of << 32) | static_cast<uint32_t>(version), std::memory_order_relaxed);
  }
  void finished(uint64_t sequence);
  // The call has begun, at that time of a steady clock, and was not over at once.
  void lasts(uint64_t sequence, int64_t since_ms) {
    lasting_since_ms_.store(since_ms, std::memory_order_relaxed);
    lasting_.store(sequence, std::memory_order_release);
  }

  // A thread has waited for a message since then; peer is a world rank, or -1 for any.
  void sleeps_in_p2p(int peer, std::string text, std::chrono::steady_clock::time_point since);
  // It has looked again, in vain.
  void looked_in_p2p() { p2p_looks_.fetch_add(1, std::memory_order_relaxed); }
  void woke_from_p2p();
  // Notes the calling thread.
  void note_thread() {
    const auto self = std::this_thread::get_id();
    if (thread_.load(std::memory_order_relaxed) != self) note_other_thread(self);
  }

  CallState state(uint64_t sequence) const;
  // CommunicatorEvents::waits_in()
  std::string waits_in() const;
  // What status says of calls: those made, and the one under way.
  void describe(CommunicatorStatus& status) const;
  // Sequence of the last call of which all before it, and it, have finished; 0 if none.
  uint64_t last_finished() const;

 private:
  // Records remembered: a rank cannot be further behind the others than the links' depth lets it, a few operations.
  static constexpr size_t kRemembered = 64;
  struct Record {
    uint64_t first = 0;  // sequence; those after it up to the next record's are alike
    uint64_t kind = 0;
    uint64_t bytes = 0;  // CheckedCall::total_bytes()
    CheckedCall call;
  };

  mutable std::mutex mutex_;
  void record(uint64_t sequence, uint64_t kind, const CheckedCall& call);
  void remember_more();
  const Record& newest() const { return records_[(recorded_ - 1) % records_.size()]; }
  const Record* record_of(uint64_t sequence) const;
  void note_other_thread(std::thread::id self);
  // CallState::route of a call; 0: none is remembered.
  uint64_t route(uint64_t sequence) const;
  uint64_t since_ms(uint64_t sequence) const;
  uint64_t p2p_since_ms() const;

  int world_ = 1;
  // Grows to kRemembered; most communicators make few kinds of calls.
  std::vector<Record> records_ = std::vector<Record>(4);
  // By sequence: its algorithm (8 bits), the sequence (24 bits) and the version (32 bits).
  static constexpr uint64_t kSequenceMask = 0xffffff;
  std::array<std::atomic<uint64_t>, kRemembered> routes_{};
  uint64_t recorded_ = 0;                                       // records so far
  std::array<CommunicatorStatus::Calls, kCollectives> made_{};  // of all but the newest record
  uint64_t last_kind_ = 0;                                      // under the submission lock
  std::atomic<uint64_t> current_{0};
  std::atomic<uint64_t> lasting_{0};
  std::atomic<int64_t> lasting_since_ms_{0};
  std::atomic<uint64_t> finished_{0};  // operations of a communicator end in order
  int p2p_sleepers_ = 0;
  std::atomic<uint64_t> p2p_looks_{0};
  int p2p_peer_ = -1;
  std::string p2p_text_;
  std::chrono::steady_clock::time_point p2p_since_{};
  std::atomic<std::thread::id> thread_{};  // the first that called
  std::atomic<bool> threads_{false};
};

}  // namespace rondo
