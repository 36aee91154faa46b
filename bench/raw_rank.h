#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/descriptor.h"
#include "bench/raw_setting.h"

namespace rondo::bench {

// Where the children of a RawRing meet; in memory that all of them map. Counts only grow: meeting number n is over when
// `arrived` has reached n * world.
struct RawMeeting {
  std::atomic<uint64_t> arrived{0};
  std::atomic<bool> failed{false};  // a rank gave up: nobody waits for it
  std::atomic<bool> enough{false};  // rank 0's word before a meeting: no further batch of exchanges
  uint64_t token = 0;               // what a connection says first; strangers on the port do not know it
};

// One process of a RawRing. Everything blocks with a deadline of a few seconds, and throws Exception(kSystem).
class RawRank {
 public:
  // ports[r]: where rank r listens on 127.0.0.1.
  RawRank(int rank, Descriptor listener, std::vector<uint16_t> ports, uint64_t buffer_bytes, RawMeeting* meeting);

  double stream_gbps(const RawSetting& setting, double seconds);
  double exchange_us(const std::string& congestion, double seconds);

 private:
  // One direction of one connection, walking round its share of the buffer.
  struct Flow {
    int fd = -1;
    std::byte* begin = nullptr;
    uint64_t size = 0;
    uint64_t at = 0;
    uint64_t left = 0;  // of the transfer under way
    uint64_t moved = 0;
  };
  // Connections of one measurement; in world 2 outgoing and incoming are the same sockets.
  struct Connections {
    std::vector<Descriptor> owned;
    std::vector<int> outgoing, incoming;
  };
  enum class Direction { kSend, kReceive };

  Connections connect(const std::string& congestion, int connections);
  Descriptor dial(uint16_t port, const std::string& congestion, int index);
  std::pair<int, Descriptor> accept_one(const std::string& congestion);
  std::vector<Flow> flows(const std::vector<int>& fds, uint64_t shift) const;
  // Until `end`; returns bytes per second received from `start` on (0 for a thread that only sends).
  double drive(std::vector<Flow> sending, std::vector<Flow> receiving, const RawSetting& setting, double start,
               double end) const;
  void meet();

  int rank_;
  int world_;
  Descriptor listener_;
  std::vector<uint16_t> ports_;
  std::vector<std::byte> buffer_;
  RawMeeting* meeting_;
  uint64_t meetings_ = 0;
};

}  // namespace rondo::bench
