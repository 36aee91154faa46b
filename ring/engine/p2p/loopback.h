#pragma once

#include <cstdint>

#include "ring/engine/p2p/context.h"

namespace rondo {

// A rank's messages to itself, by the rules of all messages but without a stream. A message up to the eager
// limit is copied while the pool has room, and its send is complete at once. Any other is copied from the
// sender's memory when its receive comes.
class P2pLoopback {
 public:
  explicit P2pLoopback(P2pContext& context) : context_(context) {}

  // Takes a send in. Nothing has happened if it throws.
  void add(P2pRequest& send);
  // A message of this rank, just taken out of the matcher, has met its receive. Gives the message back to the pool.
  void accept(P2pMessage& message, P2pRequest& receive) noexcept;
  // Drops all messages. Sends that wait for their receives fail with the error.
  void end(const Error& error) noexcept;
  bool idle() const { return waiting_ == 0; }

 private:
  // The message meets its receive: the payload is copied from `data`, or both ends fail. send: where `data` is the
  // sender's memory; null: its send is over.
  void meet(const P2pEnvelope& envelope, const std::byte* data, P2pRequest& receive, P2pRequest* send) noexcept;

  P2pContext& context_;
  // What the messages in the pool have taken of the credit that a peer would have.
  uint64_t used_bytes_ = 0;  // of the pool
  uint64_t used_slots_ = 0;
  uint64_t sequence_ = 0;
  uint64_t waiting_ = 0;  // sends
};

}  // namespace rondo
