#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ring/base/types.h"
#include "rondo/dtype.h"
#include "rondo/op.h"

namespace rondo::bench {

// What can be timed: the collectives; every rank sending to the next one while it receives from the one before; ranks
// 2i and 2i + 1 sending one another a message in turn, the even one first, or both kBurstMessages at once. Values up
// to kBarrier are those of rondo::Collective.
enum class Benchmark : uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kBroadcast = 3,
  kReduce = 4,
  kGather = 5,
  kScatter = 6,
  kAllToAll = 7,
  kBarrier = 8,
  kSendRecv = 9,
  kPingPong = 10,
  kBurst = 11,
};
inline constexpr int kBenchmarks = 12;

const char* benchmark_name(Benchmark benchmark);
std::optional<Benchmark> benchmark_by_name(std::string_view name);
// nullopt for those of messages.
std::optional<Collective> benchmark_collective(Benchmark benchmark);
bool benchmark_reduces(Benchmark benchmark);
bool benchmark_has_root(Benchmark benchmark);

// Where input and output lie. Not every benchmark has both: the library's broadcast has one buffer, its all_to_all and
// messages two.
enum class Placement : uint8_t { kOutOfPlace, kInPlace };
bool benchmark_has(Benchmark benchmark, Placement placement);

// Whether a world of this size can run it: sendrecv is between different ranks, pingpong and burst between the two of
// a pair.
bool benchmark_fits(Benchmark benchmark, int world);

// Messages that a rank sends or awaits in an operation; times are of one of them. A ping-pong's are there and back.
int benchmark_messages(Benchmark benchmark);
// A burst posts so many receives, each for memory of its own, and starts so many sends, before it waits for one.
inline constexpr int kBurstMessages = 64;
// In a ping-pong or a burst.
constexpr int partner_of(int rank) { return rank ^ 1; }
constexpr bool sends_first(int rank) { return rank % 2 == 0; }

// Whose memory the buffers are: any, or what the library gives so that other ranks can reach it.
enum class BufferKind : uint8_t { kPlain, kRegistered };
constexpr const char* buffer_kind_name(BufferKind kind) { return kind == BufferKind::kPlain ? "plain" : "registered"; }

// The names that users of nccl-tests type are accepted too: half, float, double, int; prod, mulsum.
std::optional<DType> dtype_by_name(std::string_view name);
std::optional<Op> op_by_name(std::string_view name);

// How many elements one measurement moves.
struct Extent {
  uint64_t bytes = 0;            // the "size" column: the larger of the buffers that one rank holds
  uint64_t count = 0;            // the "count" argument of the call
  uint64_t input_elements = 0;   // on a rank that has an input
  uint64_t output_elements = 0;  // on a rank that has an output
  bool operator==(const Extent&) const = default;
};

// The extent nearest below the wanted size: whole elements, the same for each rank, at least one. Benchmarks without
// data (barrier) have none.
Extent extent_of(Benchmark benchmark, uint64_t size_bytes, DType dtype, int world);

// busbw = algbw * bus_factor: the rate at which the busiest link must carry bytes if the algorithm is the best there
// is (nccl-tests, doc/PERFORMANCE.md). 0 where the world is 1 and nothing has to move.
double bus_factor(Benchmark benchmark, int world);

// Whether every rank sends as much as it receives, at the rate that busbw states: only then a full-duplex ring of raw
// connections is a limit to compare with.
bool benchmark_loads_ring_evenly(Benchmark benchmark);

}  // namespace rondo::bench
