#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "ring/engine/p2p/request.h"
#include "ring/engine/p2p/wire.h"

namespace rondo {

// A message that came before its receive (unexpected, in MPI's words).
struct P2pMessage {
  P2pEnvelope envelope;  // kEager or kRequest
  int peer = -1;
  std::byte* data = nullptr;    // kEager: envelope.bytes of the pool's; nullptr for none
  bool arriving = false;        // kEager: not all of it is there
  P2pRequest* local = nullptr;  // from this rank to itself, not copied
  uint64_t claim = 0;           // the number by which a matched probe has taken it; 0: it waits for anybody

  P2pMessage* next = nullptr;
  P2pMessage* previous = nullptr;
};

// Memory of unexpected messages until their receives come. The peers' credit, which is counted in p2p_charge(),
// bounds how much is in use. Memory that is given back is kept for use again up to a bound, so a steady
// exchange allocates nothing. P2pContext owns it. One thread at a time.
class P2pPool {
 public:
  P2pPool() = default;
  P2pPool(const P2pPool&) = delete;
  P2pPool& operator=(const P2pPool&) = delete;
  ~P2pPool();

  // A message, with memory for its payload if the envelope is eager and not empty. If it throws, nothing has
  // happened.
  P2pMessage* take(const P2pEnvelope& envelope, int peer);
  void give(P2pMessage* message) noexcept;

  uint64_t used_bytes() const { return used_bytes_; }  // p2p_charge() of what is out
  uint64_t kept_bytes() const { return kept_bytes_; }  // free, for reuse
  size_t messages() const { return messages_; }        // out

 private:
  static constexpr int kClasses = 64;  // by the logarithm of the size

  struct Block {  // lies in its memory
    Block* next;
  };
  // Blocks of these bytes, a power of two of at least 64 (p2p_charge()). take_block() throws without memory.
  std::byte* take_block(uint64_t bytes);
  void give_block(std::byte* memory, uint64_t bytes) noexcept;

  std::array<Block*, kClasses> free_ = {};
  std::deque<P2pMessage> nodes_;  // as many as were ever out at once: bounded by the peers' slots
  P2pMessage* free_nodes_ = nullptr;
  uint64_t used_bytes_ = 0;
  uint64_t kept_bytes_ = 0;
  size_t messages_ = 0;
};

// The cost of a message of that size in the receiver's pool: the power of two that holds it, at least 64 (a
// cache line); 0 for an empty one. Both sides count by it, so it is part of the protocol. Requires bytes <=
// kP2pMaxBytes.
constexpr uint64_t p2p_charge(uint64_t bytes) { return bytes == 0 ? 0 : std::max<uint64_t>(64, std::bit_ceil(bytes)); }

}  // namespace rondo
