#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/peer_bell.h"

namespace rondo {

// The doorbell of another rank (Doorbell::share): its flag in shared memory, and a socket that it reads. The peer may
// announce it after its links are in use; what was changed before is caught up by the ring that connect() ends with.
class RemoteBell final : public PeerBell {
 public:
  // Once. owner: keeps the flag's memory and the socket.
  void connect(std::atomic<uint32_t>* flag, int socket, std::shared_ptr<void> owner) {
    owner_ = std::move(owner);
    socket_ = socket;
    flag_.store(flag, std::memory_order_seq_cst);
    ring();
  }

  // As Doorbell::ring(): one load when the sleeper is awake. The caller has stored (sequentially consistent) what the
  // sleeper will look at. Any thread.
  void ring() override {
    std::atomic<uint32_t>* flag = flag_.load(std::memory_order_seq_cst);
    if (flag == nullptr || flag->load(std::memory_order_seq_cst) == 0) return;
    if (flag->exchange(0, std::memory_order_seq_cst) == 0) return;
    const char byte = 1;
    // The flag, and not what the peer has set its socket to, keeps this from blocking. A full socket wakes, too.
    [[maybe_unused]] const ssize_t sent = ::send(socket_, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

 private:
  std::atomic<std::atomic<uint32_t>*> flag_{nullptr};
  std::shared_ptr<void> owner_;  // shared with the peer's other bell, or with the peer's thread
  int socket_ = -1;
};

// Whether the process at the other end of an island connection is there; shared by the links to it.
struct PeerLife {
  std::atomic<bool> over{false};  // set by the I/O thread
};

}  // namespace rondo
