#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "ring/engine/call.h"
#include "transport/fabric.h"

namespace rondo {

// What this rank has called lately on one communicator, for the others' question why an operation does not move.
// Writing costs an uncontended lock and a copy of a few words a call; the text is made when somebody asks. Any thread.
class CallLog {
 public:
  void called(uint64_t sequence, uint64_t fingerprint, const CallSummary& call);
  // One thread at a time: the holder of the lease.
  void finished(uint64_t sequence);
  // A blocking send or recv has waited for long; peer is a world rank, or -1 for any.
  void sleeps_in_p2p(int peer, std::string text);
  void woke_from_p2p();
  // Notes the calling thread.
  void note_thread();

  CallState state(uint64_t sequence) const;
  // Sequence of the last call of which all before it, and it, have finished; 0 if none.
  uint64_t last_finished() const;

 private:
  // Calls remembered: a rank cannot be further behind the others than the links' depth lets it, a few operations.
  static constexpr size_t kRemembered = 64;
  struct Record {
    uint64_t sequence = 0;
    uint64_t fingerprint = 0;
    CallSummary call;
  };

  mutable std::mutex mutex_;
  std::array<Record, kRemembered> records_{};
  uint64_t current_ = 0;
  std::atomic<uint64_t> finished_{0};  // operations of a communicator end in order
  int p2p_sleepers_ = 0;
  int p2p_peer_ = -1;
  std::string p2p_text_;
  std::atomic<std::thread::id> thread_{};  // the first that called
  std::atomic<bool> threads_{false};
};

}  // namespace rondo
