#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "ring/base/descriptor.h"

namespace rondo::testing {

// Takes TCP connections at its doors, opens each of them anew to where it was meant to go, and copies bytes both ways.
// It holds 64 KiB of each direction, and reads no more. One thread.
class Copier {
 public:
  // One direction of a connection.
  struct Flow {
    int from = -1, to = -1;
    bool by_caller = false;
    std::string held;    // read, and not written yet
    bool ended = false;  // nothing more comes from `from`
    double allowed = 0;  // bytes, where there is a limit
    bool passed() const { return ended && held.empty(); }
  };
  // Where the connection that was accepted as `caller` goes.
  using Target = std::function<sockaddr_in(int caller)>;
  // What was read just now: held from `at` on. It may change it.
  using Seen = std::function<void(Flow& flow, size_t at)>;

  // doors: sockets that listen, non-blocking.
  Copier(std::vector<Descriptor> doors, Target target, Seen seen);
  // Copies for 20 ms at most. Returns whether `other` is readable.
  bool step(int other);
  // In each direction of each connection; 0: no limit.
  void limit_rate(size_t bytes_per_second) { rate_ = bytes_per_second; }

 private:
  struct Connection {
    Descriptor caller, called;
    Flow there, back;
  };
  bool wait(int other);
  void accept(const Descriptor& door);
  void refill();
  void copy(Flow& flow);
  void read(Flow& flow);

  const std::vector<Descriptor> doors_;
  const Target target_;
  const Seen seen_;
  std::list<Connection> connections_;
  size_t rate_ = 0;
  std::chrono::steady_clock::time_point refilled_;
};

// Listens on an address, non-blocking. Throws std::runtime_error.
// `transparent`: also for what is addressed to other hosts (IP_TRANSPARENT, needs root).
enum class Listen { kOwnAddress, kTransparent };
Descriptor listen_at(const sockaddr_in& address, Listen how);

}  // namespace rondo::testing
