#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/limit/descriptor.h"
#include "bench/limit/raw_setting.h"

namespace rondo::bench {

// `world` forked processes joined in a ring by raw TCP connections over loopback, with no library of ours between the
// socket calls and the buffers: what the kernel can do at best. World 2 uses each connection both ways.
//
// Forks, so make it before the process has threads. The children end with this object, or with this process. After
// an exception only the destructor may be called.
class RawRing {
 public:
  // buffer_bytes: of each rank; sending and receiving walk through all of it. Throws Exception(kSystem).
  RawRing(int world, uint64_t buffer_bytes);
  RawRing(const RawRing&) = delete;
  RawRing& operator=(const RawRing&) = delete;
  ~RawRing();

  // Bytes per second that each rank sends, and receives at the same time, in GB/s (10^9): the fastest quarter of
  // batches in which each rank sends, and receives, batch_bytes (rounded up to whole transfers), timed as operations
  // are (measure.h): from a meeting of all ranks until the slowest one is done. For `seconds`, after a batch that warms
  // up. Throws Exception(kSystem).
  double stream_gbps(const RawSetting& setting, uint64_t batch_bytes, double seconds);

  // One exchange of 8 bytes, in microseconds: every rank sends to the next one, then spins until the message of the one
  // before it is there; TCP_NODELAY. Median of batches of 100, of the slowest rank.
  double exchange_us(const std::string& congestion, double seconds);

 private:
  struct Child {
    pid_t pid = -1;
    Descriptor channel;  // commands down, results up
  };
  struct Command;
  struct Result;
  void start_child(int rank, std::vector<Descriptor>& listeners, const std::vector<uint16_t>& ports);
  double run(const Command& command);  // the largest result
  Result receive(Child& child, double seconds);

  uint64_t buffer_bytes_;
  void* shared_ = nullptr;  // a RawMeeting (raw_rank.h) seen by all children
  std::vector<Child> children_;
};

// The congestion controls that this process may set on a socket, the system's default among them.
std::vector<std::string> allowed_congestion_controls();
std::string default_congestion_control();

}  // namespace rondo::bench
