#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ring/base/node_list.h"
#include "ring/engine/call/call.h"
#include "ring/engine/communicator_status.h"
#include "transport/fabric.h"

namespace rondo {

// What this rank has called lately on one communicator. Other ranks ask when an operation does not move, and
// compare. Calls of one kind in a row are one record: a call that equals the last one costs a store, another
// one an uncontended lock and a copy of a few words. The text is made on request. Any thread, unless a comment
// says otherwise.
class CallLog {
 public:
  // Sets the number of ranks, before the first call.
  void of_world(int world) { world_ = world; }
  // A call has its number. Equal kinds are equal calls: fingerprint_of(kind, sequence) is the call's
  // fingerprint. Under the submission lock.
  void called(uint64_t sequence, uint64_t kind, const CheckedCall& call) {
    // Where each pair knows only its own counts, the kind does not say all.
    if (kind != last_kind_ || call.uneven) return record(sequence, kind, call);
    current_.store(sequence, std::memory_order_release);
  }
  // The call runs by this route, decided under this version of the table of routes. Members that run one call
  // by different routes can never complete it; the answer to a question shows that. took(), finished() and
  // lasts() are called under the lease of the collectives.
  void took(uint64_t sequence, Algorithm algorithm, uint64_t version) {
    const uint64_t of = (uint64_t{static_cast<uint8_t>(algorithm)} << 24) | (sequence & kSequenceMask);
    routes_[sequence % kRemembered].store((of << 32) | static_cast<uint32_t>(version), std::memory_order_relaxed);
  }
  // The call has ended by itself, not by a failure of the communicator.
  void finished(uint64_t sequence);
  // The call was not over at once; it began at that time of a steady clock.
  void lasts(uint64_t sequence, int64_t since_ms) {
    lasting_since_ms_.store(since_ms, std::memory_order_relaxed);
    lasting_.store(sequence, std::memory_order_release);
  }

  // A thread waits for a message for long, while this object on its stack exists. Those who ask learn from it that
  // this rank cannot come to the collective before the message.
  class MessageWait {
   public:
    // since: when the wait began. peer: a world rank, or -1 for any.
    MessageWait(CallLog& log, int peer, std::string text, std::chrono::steady_clock::time_point since);
    ~MessageWait();
    MessageWait(const MessageWait&) = delete;
    MessageWait& operator=(const MessageWait&) = delete;
    // The thread has looked again, in vain. While the count does not grow the thread does not run.
    void looked() { log_.p2p_looks_.fetch_add(1, std::memory_order_relaxed); }

    MessageWait* next = nullptr;  // in the log's list
    MessageWait* previous = nullptr;

   private:
    friend class CallLog;
    CallLog& log_;
    const int peer_;
    const std::string text_;
    const std::chrono::steady_clock::time_point since_;
  };
  // Remembers whether calls come from more than one thread: then one that sleeps in a message proves nothing.
  void note_thread() {
    const auto self = std::this_thread::get_id();
    if (thread_.load(std::memory_order_relaxed) != self) note_other_thread(self);
  }

  CallState state(uint64_t sequence) const;
  // What this rank waits in, in words; empty: in nothing for long (CommunicatorEvents::waits_in).
  std::string waits_in() const;
  // Fills in what the status shows of calls: how many were made, and the one under way.
  void describe(CommunicatorStatus& status) const;
  // Number of the last call that has finished; all before it have, too. 0: none.
  uint64_t last_finished() const;

 private:
  // Records that are remembered. The links' depth lets a rank fall only a few operations behind the others.
  static constexpr size_t kRemembered = 64;
  struct Record {
    uint64_t first = 0;  // sequence; those after it up to the next record's are alike
    uint64_t kind = 0;
    uint64_t bytes = 0;  // CheckedCall::total_bytes()
    CheckedCall call;
  };

  // Guards the records, made_ and message_waits_.
  mutable std::mutex mutex_;
  void record(uint64_t sequence, uint64_t kind, const CheckedCall& call);
  void remember_more();
  const Record& newest() const { return records_[(recorded_ - 1) % records_.size()]; }
  const Record* record_of(uint64_t sequence) const;
  void note_other_thread(std::thread::id self);
  // CallState::route of a call; 0: none is remembered.
  uint64_t route(uint64_t sequence) const;
  uint64_t since_ms(uint64_t sequence) const;

  int world_ = 1;
  // Grows to kRemembered; most communicators make few kinds of calls.
  std::vector<Record> records_ = std::vector<Record>(4);
  // By sequence: the algorithm in 8 bits, the sequence in 24, the version in 32. One word, so that it is read
  // whole.
  static constexpr uint64_t kSequenceMask = 0xffffff;
  std::array<std::atomic<uint64_t>, kRemembered> routes_{};
  uint64_t recorded_ = 0;                                       // records so far
  std::array<CommunicatorStatus::Calls, kCollectives> made_{};  // of all but the newest record
  uint64_t last_kind_ = 0;                                      // under the submission lock
  // Sequences, 0 for none: of the newest call, and of the newest that was not over at once.
  std::atomic<uint64_t> current_{0};
  std::atomic<uint64_t> lasting_{0};
  std::atomic<int64_t> lasting_since_ms_{0};
  std::atomic<uint64_t> finished_{0};    // operations of a communicator end in order
  NodeList<MessageWait> message_waits_;  // the longest first
  std::atomic<uint64_t> p2p_looks_{0};
  std::atomic<std::thread::id> thread_{};  // the first thread that made a call
  std::atomic<bool> threads_{false};       // another one has made one, too
};

}  // namespace rondo
