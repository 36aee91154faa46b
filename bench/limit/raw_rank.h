#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/limit/processes.h"
#include "bench/limit/raw_pump.h"
#include "bench/limit/raw_setting.h"
#include "ring/base/descriptor.h"

namespace rondo::bench {

// Where the ranks of a ring listen on 127.0.0.1, and what a connection says first; strangers on the port do not know
// it.
struct RawAddresses {
  std::vector<uint16_t> ports;
  uint64_t token = 0;
};

// One rank of a ring of raw TCP connections over loopback, with no library of ours between the socket calls and the
// buffers: what the kernel can do at best. World 2 uses each connection both ways. Everything blocks with a deadline of
// a few seconds, and throws Exception(kSystem).
class RawRank {
 public:
  // What transfers begin and end in is aligned, as the bench's own buffers are: the kernel copies much
  // more slowly to addresses off by 16 (docs/bench.md), which is where a vector of bytes begins.
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  // buffer_bytes: of each rank; sending and receiving walk through all of it.
  RawRank(Measurer& process, Descriptor listener, const RawAddresses& addresses, uint64_t buffer_bytes);

  // What each rank sends, and receives at the same time, in GB/s (10^9): the fastest quarter of batches in which each
  // rank sends, and receives, batch_bytes (rounded up to whole transfers), timed as operations are (measure.h): from a
  // meeting of all ranks until the slowest one is done. The same on all ranks.
  double stream_gbps(const RawSetting& setting, uint64_t batch_bytes, double seconds);
  // One exchange of 8 bytes, in microseconds: every rank sends to the next one, then spins until the message of the
  // previous one is there; TCP_NODELAY. Median of batches of 100, of the slowest rank.
  double exchange_us(const std::string& congestion, double seconds);

 private:
  // In world 2 outgoing and incoming are the same sockets.
  struct Connections {
    std::vector<Descriptor> owned;
    std::vector<int> outgoing, incoming;
  };

  // Made once, and kept: congestion and receive windows of a new connection take longer to open than a measurement
  // lasts.
  const Connections& connections(const std::string& congestion, int count);
  Connections connect(const std::string& congestion, int count);
  Descriptor dial(uint16_t port, const std::string& congestion, int index);
  std::pair<int, Descriptor> accept_one(const std::string& congestion);
  void add_flows(const std::vector<int>& fds, RawFlow::Direction direction, const RawSetting& setting,
                 std::vector<RawFlow>& flows);

  Measurer& process_;
  Descriptor listener_;
  RawAddresses addresses_;
  std::vector<Line> buffer_;
  std::vector<Line> rooms_;  // of all connections of a measurement
  std::map<std::pair<std::string, int>, Connections> connections_;
};

// Runs body as each rank of a ring; see run_in_processes().
void run_ring(int world, uint64_t buffer_bytes, const std::function<void(RawRank&)>& body);

}  // namespace rondo::bench
