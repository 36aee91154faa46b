#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rondo {

// The file of one rank's trace: header, text, records. Little-endian; tools/trace/read.py reads it. Times are
// nanoseconds of CLOCK_MONOTONIC.

inline constexpr char kTraceMagic[8] = {'R', 'O', 'N', 'D', 'O', 'T', 'R', '1'};
inline constexpr size_t kTraceHeaderBytes = 4096;
// JSON objects, one a line: about the rank, its communicators, its failures. Room for the lists of members of some
// communicators of 1024 ranks.
inline constexpr size_t kTraceTextBytes = 60 * 1024;

struct TraceHeader {
  char magic[8];
  uint64_t records;                  // slots in the ring, a power of two
  std::atomic<uint64_t> written;     // records so far; the last `records` of them are in the ring
  std::atomic<uint64_t> text_bytes;  // of the text that are valid
  std::atomic<uint64_t> text_lost;   // bytes of text that had no room
};
static_assert(sizeof(TraceHeader) <= kTraceHeaderBytes);

enum class TraceKind : uint8_t {
  kBegin = 1,     // a collective has begun: number, bytes; a: Collective, b: DType, c: Op; peer: root
  kRoute = 2,     // it runs: a: Algorithm, b: RouteReason, c: Medium; end: predicted nanoseconds, 0 unknown
  kEnd = 3,       // it has ended; begin: when it began; a: ErrorCode, 0 without one; b: Collective, c: Algorithm
  kStep = 4,      // a step that moved data; bytes: of its block; peer: sources << 16 | targets
  kTransfer = 5,  // what a step read from, or wrote to, one rank; a: TraceDirection, b: TracePath
  kWait = 6,      // nothing could be reduced or copied; peer: whom it was for, -1: the own sends
  kStopped = 7,   // the rank made no progress, though something was under way
  kMessage = 8,   // a send or a receive; number: its tag; a: TraceDirection, b: ErrorCode
};
enum class TraceDirection : uint8_t { kIn = 0, kOut = 1 };
enum class TracePath : uint8_t { kLink = 0, kPeerMemory = 1, kStaging = 2, kPost = 3 };

// One event. What a, b, c and `peer` mean depends on the kind (TraceKind).
struct TraceRecord {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t number = 0;  // of the operation in its communicator
  uint64_t bytes = 0;
  uint32_t communicator = 0;  // as in the text
  int32_t peer = -1;          // rank of the communicator
  uint32_t step = 0;          // index in the plan
  uint32_t round = 0;
  TraceKind kind = TraceKind::kBegin;
  uint8_t a = 0, b = 0, c = 0;
};
struct TraceSlot {
  std::atomic<uint64_t> index;  // 1 + the record's number in the trace; 0: being written. Stored last, by release
  TraceRecord record;
};
static_assert(sizeof(TraceSlot) == 64, "a record is a cache line");

}  // namespace rondo
