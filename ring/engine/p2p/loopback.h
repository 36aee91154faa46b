#pragma once

#include <cstdint>

#include "ring/engine/p2p/context.h"

namespace rondo {

// A rank's messages to itself, by the same rules without a stream: a message up to the eager limit is copied and its
// send complete at once while the pool has room; any other is taken from the sender's memory by its receive.
class P2pLoopback {
 public:
  explicit P2pLoopback(P2pContext& context) : context_(context) {}

  // Nothing has happened if it throws.
  void add(P2pRequest& send);
  // A message of this rank, just taken out of the matcher, has met its receive. Gives the message back to the pool.
  void accept(P2pMessage& message, P2pRequest& receive) noexcept;
  // Forgets the messages; sends that wait for their receives fail with the error.
  void end(const Error& error) noexcept;
  bool idle() const { return waiting_ == 0; }

 private:
  void meet(const P2pEnvelope& envelope, const std::byte* data, P2pRequest& receive, P2pRequest* send) noexcept;

  P2pContext& context_;
  uint64_t used_bytes_ = 0;  // of the pool
  uint64_t used_slots_ = 0;
  uint64_t sequence_ = 0;
  uint64_t waiting_ = 0;  // sends
};

}  // namespace rondo
