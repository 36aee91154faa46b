#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/limit/descriptor.h"
#include "bench/limit/raw_pump.h"
#include "bench/limit/raw_setting.h"

namespace rondo::bench {

// Where the children of a RawRing meet; in memory that all of them map. Counts only grow: meeting number n is over when
// `arrived` has reached n * world.
struct RawMeeting {
  std::atomic<uint64_t> arrived{0};
  std::atomic<bool> failed{false};  // a rank gave up: nobody waits for it
  std::atomic<uint64_t> enough{0};  // rank 0's word: behind meeting number n there is no further batch
  // Of the batches with even and with odd numbers; rank 0 takes the time of one while the next one is under way.
  std::atomic<double> slowest_us[2] = {0, 0};
  uint64_t token = 0;  // what a connection says first; strangers on the port do not know it
};

// One process of a RawRing. Everything blocks with a deadline of a few seconds, and throws Exception(kSystem).
class RawRank {
 public:
  // What transfers begin and end in is aligned, as the bench's own buffers are: the kernel copies much
  // more slowly to addresses off by 16 (docs/bench.md), which is where a vector of bytes begins.
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  // ports[r]: where rank r listens on 127.0.0.1.
  RawRank(int rank, Descriptor listener, std::vector<uint16_t> ports, uint64_t buffer_bytes, RawMeeting* meeting);

  // Results are rank 0's; the others return 0.
  double stream_gbps(const RawSetting& setting, uint64_t batch_bytes, double seconds);
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
  // Batches for so long, after one that warms up; a quantile of the slowest rank's times.
  double batch_us(double seconds, double quantile_wanted, const std::function<void()>& batch);
  void meet();
  void wait_a_little(uint32_t vain) const;

  int rank_;
  int world_;
  Descriptor listener_;
  std::vector<uint16_t> ports_;
  int cores_;  // that this process may use
  std::vector<Line> buffer_;
  std::vector<Line> rooms_;  // of all connections of a measurement
  std::map<std::pair<std::string, int>, Connections> connections_;
  RawMeeting* meeting_;
  uint64_t meetings_ = 0;
};

}  // namespace rondo::bench
