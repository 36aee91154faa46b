#pragma once

#include <cstdint>

namespace rondo {

// What the ranks of an island say to each other over their unix connection: a greeting, then frames, as they lie in
// memory (one machine, and one build of the library: the handshake has compared its hash). docs/shared-memory.md.
enum class IslandTopic : uint64_t {  // as long as what follows it: a frame has no padding
  kWindow = 1,                       // one descriptor: a window of mine, id and bytes
  kDrop = 2,                         // I have let go of the window `id`
  kLink = 3,                         // one descriptor: the memory of a link that I have made (the lower rank makes it)
  kWish = 4,                         // make the link
  kStream = 5,                       // one descriptor: the memory of a stream from me to you
  kPage = 6,                         // my page of the communicator, `bytes` bytes behind the begin of my window `id`
  kOffer = 7,    // one descriptor, named `id`: of memory that is not mapped here (SharedMemory::offer)
  kSleeper = 8,  // one descriptor: the socket that wakes my sleeper `id`
  kLetGo = 9     // I use your page of the communicator no more
};

// One message. Fields that a topic does not name are 0. All of them are the sender's claims.
struct IslandFrame {
  IslandTopic topic = IslandTopic::kWindow;
  uint64_t communicator = 0;
  uint64_t id = 0;
  uint64_t bytes = 0;
  uint32_t depth = 0;  // of a link
  uint32_t slice_bytes = 0;
};
static_assert(sizeof(IslandFrame) == 40);

// The first message on a connection, from the rank that made it.
struct IslandGreeting {
  uint64_t session = 0;  // IslandDoor::Settings::session
  int32_t from = -1, to = -1;
  bool operator==(const IslandGreeting&) const = default;
};

// How many descriptors come with it; -1: no topic of ours.
constexpr int descriptors_of(IslandTopic topic) {
  switch (topic) {
    case IslandTopic::kWindow:
    case IslandTopic::kLink:
    case IslandTopic::kStream:
    case IslandTopic::kOffer:
    case IslandTopic::kSleeper:
      return 1;
    case IslandTopic::kDrop:
    case IslandTopic::kWish:
    case IslandTopic::kPage:
    case IslandTopic::kLetGo:
      return 0;
  }
  return -1;
}

}  // namespace rondo
