#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/bell.h"
#include "transport/sleeper.h"

namespace rondo {

// What a flow sleeps on: a flag that others ring (bell.h), and an epoll set with the sockets of its links (edge
// triggered), if it has any. Without links it has no descriptor: what is rung is the thread that sleeps. The flow owns
// its doorbell; links hold what watch() returns, and may outlive it.
class Doorbell {
 public:
  explicit Doorbell(std::shared_ptr<Sleepers> sleepers);
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // Wakes a sleeper when the descriptor becomes readable or writable (edge triggered: its flow reads and
  // writes until the kernel says no), until what is returned is gone, which must be before the descriptor is closed.
  // Any thread. Throws Exception(kSystem).
  [[nodiscard]] std::shared_ptr<void> watch(int descriptor);
  // The flow has not slept for long. A watched socket costs a sender over loopback 0.1 to 0.4 us a message, so nothing
  // is watched until the next arm(). Does nothing while armed. Costs a system call a descriptor; so does that arm().
  // Under the lease of the flow, as arm(): beside an arm() it could leave the sleeper with nothing watched.
  void relax();

  // Bell::ring() from inside the process. Any thread.
  void ring() {
    if (armed_->load(std::memory_order_seq_cst) != 0) Bell::ring(*armed_, *sleepers_->sockets());
  }

  // --- A thread that is about to sleep arms the doorbells of its flows, each under the lease of the flow, looks once
  // more, and waits for the sleep and for their descriptors.
  // From here on ring() ends the sleep. Pairs with ring(): arm() stores the flag, then the flow reads the state that
  // ringers change; ringers change the state, then read the flag (all four sequentially consistent).
  void arm(const Sleep& sleep);
  // Unless another thread has armed it since. Any thread.
  void disarm(const Sleep& sleep);
  // Readable when a watched descriptor has changed; -1: nothing is watched yet. Any thread.
  int descriptor() const;
  // Takes the events away for which descriptor() was readable.
  void take_events();

  // Moves the flag into memory that other processes map too. Once, before the first use; `memory` keeps it mapped.
  void share(std::atomic<uint32_t>* flag, std::shared_ptr<const void> memory);
  // Rings this doorbell, and may outlive it. After share().
  std::shared_ptr<Bell> bell() const;

 private:
  const std::shared_ptr<Sleepers> sleepers_;  // shared by all doorbells of a rank
  std::atomic<uint32_t> own_flag_{0};
  std::atomic<uint32_t>* armed_ = &own_flag_;  // Sleep::number() of the thread that sleeps or is about to
  std::shared_ptr<const void> memory_;         // of a flag that is shared with other processes
  struct Watches;
  const std::shared_ptr<Watches> watches_;  // shared with what watch() has returned
};

}  // namespace rondo
