#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/ranks.h"

// Calls of which one rank makes another one than the rest, on host memory and on device memory.
namespace rondo::testing {

inline constexpr int kMismatchWorld = 4;
// A second is promised; the machine that runs the tests may have fewer cores than ranks.
inline constexpr int64_t kSoonMs = 2'000;

struct OneCall {
  Collective collective = Collective::kAllReduce;
  uint64_t count = 40;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int root = 0;
  CallOptions options = {};
  std::string text;  // how the message shows it

  uint64_t input_bytes() const;
  uint64_t output_bytes() const;
  // Of a broadcast the input is the output.
  Call on(const void* input, void* output) const;
};

struct Mismatch {
  const char* what;
  OneCall usual;
  OneCall odd;
  int odd_rank = 1;
};

std::vector<Mismatch> mismatches();

// Starts the ranks, which say "ready"; then how their call ended, how the next one did, the communicator's error,
// whether memory is "intact", and how destroy() ended: MISMATCH in time, with both calls, each beside a rank that made
// it, and `also`.
void check_mismatch(const Mismatch& mismatch, const RankProcess::Body& body, const Config& config = fault_config(),
                    const std::string& also = "");

// The job's ranks are told to go, and say how an all_to_all_v ended whose counts only two of them know, and whether
// their memory is intact.
void expect_pair_mismatch(Job& job);
// The same, of an all_reduce that one rank does not make, which sleeps in a message to or from rank 2.
void expect_sleeper_mismatch(Job& job, bool sends);

}  // namespace rondo::testing
