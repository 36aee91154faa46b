#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ring/base/descriptor.h"
#include "rondo/error.h"
#include "transport/peer_bell.h"

struct epoll_event;

namespace rondo {

// What a progress engine of links sleeps on: an epoll set with the descriptors of its links (edge triggered) and an
// eventfd that others ring, or a socket where they are other processes. A progress engine that found nothing to do
// calls arm(), looks once more, and then wait().
class Doorbell final : public PeerBell {
 public:
  Doorbell();  // throws Exception(kSystem) when descriptors run out
  ~Doorbell() override;
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // Wakes wait() when the descriptor becomes readable or writable (edge triggered: its progress engine reads and writes
  // until the kernel says no), until what is returned is gone, which must be before the descriptor is closed. Any
  // thread. Throws Exception(kSystem).
  [[nodiscard]] std::shared_ptr<void> watch(int descriptor);
  // The progress engine has not slept for long. A watched socket costs a sender over loopback 0.1 to 0.4 us
  // a message, so nothing is watched until the next arm(). Does nothing while armed. Costs a system call a descriptor;
  // so does that arm(). Any thread.
  void relax();

  // Rings if the progress engine is asleep or about to be: one load when it is awake. Any thread, never blocks.
  void ring() override;

  // From here on ring() wakes the next wait(). Pairs with ring(): arm() stores the flag, then the progress engine reads
  // the state that ringers change; ringers change the state, then read the flag (both sequentially consistent).
  void arm();
  // The progress engine found work after arm().
  void disarm();
  // Sleeps until rung, a watched descriptor changes, the deadline, or for no reason. Disarms. An error: it cannot sleep
  // any more, since somebody has closed its descriptors.
  [[nodiscard]] Error wait(std::chrono::steady_clock::time_point deadline);

  // Moves the flag that arm() sets into memory that other processes map too, and makes the socket that they send a byte
  // to when they find it set (and then clear it, as ring() does). A socket, since a process that holds an eventfd could
  // make it block its writers. Once, before the first use; `memory` keeps it mapped. Throws Exception(kSystem).
  void share(std::atomic<uint32_t>* flag, std::shared_ptr<void> memory);
  // After share(): what the others send to.
  int bell() const { return bell_.get(); }

  // The epoll descriptor, so that one sleeper can wait for several doorbells: readable when this one would wake.
  int descriptor() const { return epoll_.get(); }
  // Takes the pending events away without sleeping, for the sleeper that waited on descriptor(). Disarms.
  void drain();

 private:
  void take_rings(const epoll_event* events, int count) const;

  Descriptor epoll_;
  Descriptor event_;  // the eventfd, or the reading end of the socket, of which a forked child has none
  Descriptor bell_;   // the other end
  std::atomic<uint32_t> own_flag_{0};
  std::atomic<uint32_t>* armed_ = &own_flag_;  // not 0: the progress engine sleeps or is about to
  std::shared_ptr<void> memory_;               // of a flag that is shared with other processes
  struct Watches;
  const std::shared_ptr<Watches> watches_;  // shared with what watch() has returned
};

}  // namespace rondo
