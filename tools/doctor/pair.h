#pragma once

#include <cstdint>
#include <string>

#include "tools/doctor/finding.h"

namespace rondo::doctor {

// One end of a check of two hosts: both join a job of two ranks, by the library itself, and time messages. Each end is
// one run of rondo-doctor, on its own host.
struct PairEnd {
  bool listens = false;  // this is rank 0, and the job meets here
  std::string host;      // where it meets; of the listening end: its own address
  uint16_t port = 0;
};
inline constexpr uint16_t kPairPort = 20'777;  // of no known service, below the ephemeral ports

// "HOST", "HOST:PORT", "[v6]:PORT"; "" or ":PORT" for the listening end, which finds its own address. Throws
// Exception(kInvalid); kBootstrap where this host has no address for others; what join() would where it
// may not listen.
PairEnd parse_pair_end(const std::string& text, bool listens);

// Blocks until the other end has come (RONDO_START_TIMEOUT_MS) and all is measured, some seconds. Latency is half a
// round trip of 8 bytes; bandwidths are of 64 MiB messages, one direction and both.
Findings check_pair(const PairEnd& end);

}  // namespace rondo::doctor
