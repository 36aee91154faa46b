#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_fold.h"

// A call whose ranks map each other's device memory, as one kernel: what it is given, and the memory by which the
// kernels of the ranks hear of each other. call_lane.h runs it.
namespace rondo {

inline constexpr int kMaxDeviceRanks = 16;
inline constexpr uint32_t kMaxLanes = 128;    // blocks of one kernel
inline constexpr uint32_t kCallWords = 6;     // lower.h: kStreamWords
inline constexpr uint32_t kMessageWords = 4;  // the words from here on count messages: kArrivedWord
inline constexpr uint32_t kMessageSlots = 2;  // kStreamSlots

// A post: what a lane sends to another rank without an order between stores. Each word of 8 bytes has 4 of data, and
// above them the lane's count of calls, by which the reader knows it. So a word of another call with the same count,
// 2^32 before, must not be left: halfway between multiples of kRenewedCalls a lane overwrites all of its words in both
// places.
inline constexpr uint64_t kMostPostBytes = 64 * 1024;  // of data: beyond, twice the bytes take longer than a round trip
inline constexpr uint32_t kMostPostLanes = 32;         // 2 words a thread
inline constexpr uint32_t kRenewedCalls = 1u << 30;
inline constexpr uint64_t kPostedBytes = 2;  // for each of data
// Device memory of a rank for posts: two places for each other rank, used in turn by call, and room for their data.
constexpr uint64_t post_room(uint64_t world) { return world * kMostPostBytes * (2 * kPostedBytes + 1); }

// The block of a rank's buffer that another rank touches: in `window` of its maker, from byte `offset` on.
struct BlockCard {
  uint64_t window, offset;
  uint64_t staged;  // 1: window 0 holds one slice of it at a time, which the kernel copies there or back
};
// What a rank tells another one of a call.
struct DeviceCard {
  BlockCard input, output;
  uint64_t longest;  // elements of the longest of its blocks
};

// What a lane of one rank writes for the same lane of another one, into that one's device memory. prints and cards in
// turn by call: a rank is at most one call ahead of those that it meets. They are written word by word, since what a
// rank has read long ago orders nothing.
struct alignas(64) LaneMail {
  uint64_t prints[2][2];  // the halves of DeviceCall::prints, as words of a post
  DeviceCard cards[2];
  uint32_t words[kCallWords];
};
// Device memory of a rank, zeroed when it is made; all ranks that it meets map it.
struct DeviceControl {
  struct alignas(64) Lane {
    LaneMail from[kMaxDeviceRanks];
    // The rank's own: calls, their slices and messages before the next call, modulo 2^32.
    uint32_t calls, slices, messages;
  };
  Lane lanes[kMaxLanes];
  uint32_t failed;  // own: not 0: kernels of this rank do nothing any more
  uint32_t left;    // own: lanes that have left the kernel that runs
  // own: 0: no kernel runs; 1: the first lane has begun; kWell: the kernel may touch memory, kEnds: it may not
  uint32_t entered;
  static constexpr uint32_t kWell = 2, kEnds = 3;
  uint32_t replays;  // own: calls of graphs that are over
};

// A lane that waits looks at its word so often before it asks for the time, and so many nanoseconds pass before it
// looks for a stop, in the host's memory, which is 1 us away: all lanes do so, which slows down those that work.
inline constexpr uint32_t kLooksBetweenClocks = 64;
inline constexpr uint64_t kNsBetweenStops = 1'000'000;

// A window as this rank's device maps it; data nullptr: it does not.
struct DeviceWindow {
  void* data;
  uint64_t bytes;
};

// Locked host memory, in which a rank's kernels say how far they are.
struct CallStatus {
  uint32_t started, met, passed;             // numbers of calls: begun, met by all ranks, and over
  uint32_t replays_started, replays_passed;  // calls of graphs
  uint32_t stop;                             // by the host: the kernels touch nothing from now on, and end
  uint32_t failure;                          // CallFailure, written last
  uint32_t rank;                             // that it is about
  uint32_t failed_call;                      // number of the first call that ends by it
  uint64_t fingerprint;                      // of its call
};
// What the host of a rank sees: load(word) is sequentially consistent, as its own stop is, which it has set before.
template <class Load>
bool is_at_work(const CallStatus& status, Load load) {
  const auto ended = [&](const uint32_t& started, const uint32_t& passed) {
    return int32_t(load(passed) - load(started)) >= 0;
  };
  return !ended(status.started, status.passed) || !ended(status.replays_started, status.replays_passed);
}
// Whether another rank's kernels may touch memory of this one.
template <class Load>
bool may_touch(const CallStatus& other, Load load) {
  return load(other.stop) == 0 || is_at_work(other, load);
}

enum class CallFailure : uint32_t {
  kNone,
  kStopped,
  kLate,       // a wait took longer than DeviceCall::limit_ns
  kOtherCall,  // `rank` is in another call
  kOverlap,    // another kernel of this rank runs: a replay of a graph, or a call beside one
  kNoMemory    // a buffer of `rank` is in no window that is mapped here
};

// --- the program: lower.h's, and where its passes find memory

// The program runs once for each *slice*: the same elements of each block, as many as window 0, or a message of a ring,
// has room for. Of a call of one slice, and where no rank has a staged buffer, once for all of it. Posts come before
// the first wait, and a call that has them has one slice.
struct CallStep {
  enum Kind : uint8_t { kSignal, kAwait, kPass, kPost, kTake, kNext };  // kNext: goes on with the next slice
  uint8_t kind;
  uint8_t word;
  uint16_t peers;  // a bit for each rank
  uint16_t index;  // of a pass; for words that count messages: how many of this call
};
struct CallRef {
  enum Place : uint8_t {
    kAddress,    // offset is an address of this rank's, of all of a block
    kStaged,     // the same, of one slice of it
    kInput,      // the block of the input of `rank` that this one touches
    kOutput,     // of its output
    kArrival,    // the slot of message `offset` of this call that comes
    kDeparture,  // the same of one that goes, at the rank that it goes to
    kPosted,     // the post of `rank`
    kPost,       // the own one at `rank`
    kTaken       // room for the data of the post of `rank`
  };
  uint64_t offset;  // bytes
  uint8_t rank;
  uint8_t place;
};
struct CallPass {
  uint64_t count;      // elements
  uint64_t scaled;     // bit i: source i is scaled
  uint16_t first_ref;  // its sources, then its targets
  uint8_t source_count, target_count;
  uint8_t fold;  // Fold; kCopies
};

// The kernel of a dtype, rondo_call_N: signed and unsigned integers share one.
constexpr int kernel_of(int dtype) { return dtype < 8 ? dtype / 2 * 2 : dtype; }

// What a ring of kMaxDeviceRanks needs.
inline constexpr uint32_t kMaxCallSteps = 162, kMaxCallPasses = 32, kMaxCallRefs = 96;

// Passed to kernels by value: fewer than the 4,096 bytes that a kernel takes.
struct DeviceCall {
  DeviceControl* controls[kMaxDeviceRanks];  // by rank, as mapped here; nullptr: not met. All: the call is of one pass
  const DeviceWindow* windows;               // device memory: [window * world + rank]
  CallStatus* status;                        // nullptr: there is none
  void *arrivals, *departures;               // slots of slot_bytes each; departures: at the rank that messages go to
  uint64_t slot_bytes;
  const uint64_t* length;  // of locked host memory: the most bytes of a pass; nullptr: it says alone how long it is
  uint64_t slice;          // elements of a block that a slice has; of the last slice fewer
  uint64_t longest;        // elements of the longest block: the same on all ranks, unless the call is uneven
  void* posts[kMaxDeviceRanks];  // memory for posts, by rank
  uint64_t post_bytes;           // of data: a lane's part of a post; 0: there are none
  uint64_t limit_ns;             // of one wait
  // What this rank and each other one must have alike, by rank: the fingerprint; of uneven calls with the counts that
  // only the two know.
  uint64_t prints[kMaxDeviceRanks];
  struct Buffer {
    uint64_t window, staged;       // BlockCard
    uint64_t at[kMaxDeviceRanks];  // BlockCard::offset, by rank
  } input, output;
  FoldArguments arguments;
  uint32_t number;    // of the call, for the host; 0: of a graph, which the host counts not
  uint32_t messages;  // of a slice, that the count grows by: the same on all ranks
  uint32_t window_count;
  uint8_t rank, world;
  uint8_t dtype;
  uint8_t step_count;
  bool by_posts;     // nothing but posts: neither cards nor word 0
  bool by_messages;  // each slice is a message; else one slice is enough where no rank has a staged buffer
  bool uneven;       // ranks know their own counts only
  CallStep steps[kMaxCallSteps];
  CallPass passes[kMaxCallPasses];
  CallRef refs[kMaxCallRefs];
};
static_assert(sizeof(DeviceCall) <= 4096);

}  // namespace rondo
