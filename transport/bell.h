#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/sleeper.h"

namespace rondo {

// Wakes the thread that drives an engine of a rank, if it sleeps: the flag of that engine's doorbell is 0 while it is
// awake, else the number of its sleeper. Across processes the flag lies in memory that both map.
class Bell {
 public:
  // Once. The rank may announce its doorbell after its links are in use; what was changed before is caught up by the
  // ring that this ends with. memory: keeps the flag there.
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
  static void ring(std::atomic<uint32_t>& flag, const SleeperSockets& sockets) {
    if (flag.load(std::memory_order_seq_cst) == 0) return;
    if (const uint32_t sleeper = flag.exchange(0, std::memory_order_seq_cst); sleeper != 0) sockets.ring(sleeper);
  }

 private:
  std::atomic<std::atomic<uint32_t>*> flag_{nullptr};
  std::shared_ptr<const SleeperSockets> sockets_;  // shared by all doorbells of that rank
  std::shared_ptr<const void> memory_;
};

}  // namespace rondo
