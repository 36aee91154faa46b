#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/sleeper.h"

namespace rondo {

// Wakes the thread that drives an engine of a rank, if it sleeps. The flag of that engine's doorbell is 0 while the
// thread is awake, else the number of its sleeper. Across processes the flag lies in memory that both map. A bell
// belongs to the rank that rings; the doorbell (doorbell.h) belongs to the rank that sleeps.
class Bell {
 public:
  // Once. The rank may announce its doorbell after its links are in use; a change made before connect() is caught up by
  // the ring at its end. memory: keeps the flag there.
  void connect(std::atomic<uint32_t>* flag, std::shared_ptr<const SleeperSockets> sockets,
               std::shared_ptr<const void> memory) {
    sockets_ = std::move(sockets);
    memory_ = std::move(memory);
    flag_.store(flag, std::memory_order_seq_cst);
    ring();
  }

  // The calling thread has stored what the sleeper will look at; that store and the look are sequentially consistent.
  // While it is awake that costs a load or two. Any thread, never blocks.
  void ring() const {
    std::atomic<uint32_t>* const flag = flag_.load(std::memory_order_seq_cst);
    if (flag != nullptr) ring(*flag, *sockets_);
  }
  // The exchange lets one of several ringers through, so a sleep ends by one byte. A later ringer finds 0: the thread
  // is on its way, and looks at everything.
  static void ring(std::atomic<uint32_t>& flag, const SleeperSockets& sockets) {
    if (flag.load(std::memory_order_seq_cst) == 0) return;
    if (const uint32_t sleeper = flag.exchange(0, std::memory_order_seq_cst); sleeper != 0) sockets.ring(sleeper);
  }

 private:
  // connect() writes the other two members before it stores flag_: a thread that loads a flag sees them.
  std::atomic<std::atomic<uint32_t>*> flag_{nullptr};
  std::shared_ptr<const SleeperSockets> sockets_;  // shared by all doorbells of that rank
  std::shared_ptr<const void> memory_;
};

}  // namespace rondo
