#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/device/peer_places.h"
#include "ring/engine/device/gate.h"
#include "ring/plan/lower.h"

namespace rondo {

// What a rank of a device island shares in host memory, which all its ranks map and lock: what its stream waits for,
// how far it is, and where the rank's buffers lie. Calls are numbered from 1 on, modulo 2^32.
struct Inbox {
  // Cards in turn. A rank is at most kAhead calls ahead of its last one that is known to be over, and a stream at most
  // one ahead of another's: what a rank looks for is there.
  static constexpr uint32_t kCards = 512;
  static constexpr uint32_t kAhead = 128;
  // Windows of one communicator in all its life: their numbers are the same on all ranks, and are not used again.
  static constexpr uint32_t kMaxWindows = 4096;

  // [word][rank]: written by that rank's stream; by the owner when it lets its streams go. lower.h says what they
  // count.
  uint32_t words[kStreamWords][kMaxPlaceRanks];
  uint32_t started, passed;  // calls that the owner's stream has come to, and has passed
  uint32_t stop;             // by the owner: its passes touch nothing from now on
  uint32_t refused;          // by its passes: PeerPlaces::refused
  uint64_t trial[kMaxPlaceRanks];
  // In turn, by number. A fingerprint of kClosed: the owner's communicator has failed in this call or before it.
  static constexpr uint64_t kClosed = 0;
  DeviceCard cards[kCards];
  // By window of the owner: bit r once rank r has let go of it. Of MemorySharing::kIpc only.
  uint64_t closed[kMaxWindows];
};

}  // namespace rondo
