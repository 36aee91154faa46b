#include "ring/engine/p2p/loopback.h"

#include <cstring>

namespace rondo {

// The eager copy is bounded by the same credit that a peer would have, so a rank that never receives from
// itself cannot fill memory.
void P2pLoopback::add(P2pRequest& send) {
  P2pEnvelope envelope;
  envelope.dtype = send.dtype;
  envelope.tag = static_cast<uint32_t>(send.tag);
  envelope.communicator = context_.options.communicator;
  envelope.bytes = send.bytes;
  envelope.sequence = sequence_++;
  if (P2pRequest* receive = context_.receive_for(envelope, context_.rank)) {
    return meet(envelope, send.data, *receive, &send);
  }
  const uint64_t charge = p2p_charge(send.bytes);
  const bool copy = !send.synchronous && send.bytes <= context_.options.eager_bytes &&
                    charge <= context_.options.pool_bytes - used_bytes_ && used_slots_ < context_.slots;
  envelope.kind = copy ? P2pKind::kEager : P2pKind::kRequest;
  P2pMessage& message = *context_.pool.take(envelope, context_.rank);
  context_.keep(message);
  if (!copy) {
    message.local = &send;
    ++waiting_;
    return;
  }
  used_bytes_ += charge;
  ++used_slots_;
  if (send.bytes > 0) std::memcpy(message.data, send.data, send.bytes);
  context_.done(send);
}

void P2pLoopback::accept(P2pMessage& message, P2pRequest& receive) noexcept {
  meet(message.envelope, message.local ? message.local->data : message.data, receive, message.local);
  if (message.local) {
    --waiting_;
  } else {
    used_bytes_ -= p2p_charge(message.envelope.bytes);
    --used_slots_;
  }
  context_.pool.give(&message);
}

void P2pLoopback::meet(const P2pEnvelope& envelope, const std::byte* data, P2pRequest& receive,
                       P2pRequest* send) noexcept {
  if (P2pContext::takes(envelope, receive)) {
    receive.message = {context_.rank, static_cast<int>(envelope.tag), envelope.bytes};
    receive.sequence = envelope.sequence;
    // A rank may send a buffer to itself.
    if (receive.wanted() > 0) std::memmove(receive.data, data, receive.wanted());
    context_.received(receive);
    if (send) context_.done(*send);
    return;
  }
  const Error error = context_.mismatch(context_.rank, envelope, receive);
  context_.fail(receive, error);
  if (send) context_.fail(*send, error);
  context_.set_failure(error);
}

void P2pLoopback::end(const Error& error) noexcept {
  while (P2pMessage* message = context_.matcher.pop_message(context_.rank)) {
    if (message->local) context_.fail(*message->local, error);
    context_.pool.give(message);
  }
  waiting_ = used_bytes_ = used_slots_ = 0;
}

}  // namespace rondo
