#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rondo::bench {

// What our figure is divided by.
enum class Against : uint8_t {
  // other libraries
  kBestMpi,   // time / that of the fastest of Open MPI, MPICH and Intel MPI
  kBestPeer,  // time / that of the fastest of them and Gloo
  kGloo,      // time / that of the fastest of Gloo's modes and algorithms
  kPeerCpu,   // CPU seconds per GB / those of the fastest peer
  // what the machine does without any
  kRawTcp,    // busbw / raw TCP
  kRawWalk,   // busbw / raw TCP whose transfers walk through the whole buffer (Memory::kWalk)
  kExchange,  // time / a bare exchange of 8 bytes over TCP
  kFusedPass  // the time of one fused pass over the same shared memory by all cores / time
};

constexpr bool against_the_machine(Against against) { return against >= Against::kRawTcp; }

// A promise about speed, of all_reduce of float32 sums in place.
struct Bar {
  enum class Kind : uint8_t { kAtLeast, kAtMost };
  std::string transport;   // shm, tcp
  std::string congestion;  // the same for all libraries; "": each library's own socket settings
  std::string buffers;     // plain, registered
  int world = 2;
  uint64_t bytes = 0;
  Against against = Against::kBestPeer;
  Kind kind = Kind::kAtMost;
  double bound = 1;
};
// "time / best MPI"; "at most".
const char* against_name(Against against);
const char* kind_name(Bar::Kind kind);
// All promises (docs/bench.md lists them).
std::vector<Bar> all_bars();
// "shm plain, 2 ranks, 64 MiB, time / best MPI".
std::string bar_name(const Bar& bar);

// One ratio a run: Rondo's figure against the other one.
struct Judged {
  Bar bar;
  std::vector<double> ratios;
  std::string missing;  // why there are none: NOT JUDGED
};
enum class Verdict : uint8_t { kHolds, kMissed, kNotJudged };
// "HOLDS".
const char* verdict_name(Verdict verdict);
// By the median ratio.
Verdict judge(const Judged& judged);
// "HOLDS  tcp plain, 2 ranks, 64 MiB, share of raw TCP: 0.91 0.88 0.90 0.93 0.89, median 0.90, at least 0.85".
std::string judged_text(const Judged& judged);
// 1 if a bar is missed, else 0.
int bars_exit_code(const std::vector<Judged>& all);

}  // namespace rondo::bench
