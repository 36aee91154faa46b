#include "ring/engine/p2p/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ring/base/caught.h"
#include "ring/base/check.h"

namespace rondo {

uint32_t P2pOptions::slots() const {
  const uint64_t slots = pool_bytes / p2p_charge(1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(slots, 1, std::numeric_limits<uint32_t>::max()));
}

// A peer whose frames carry checksums is not read: what a copy of its memory brings has none.
P2pContext::P2pContext(int rank_in, int world_in, P2pOptions options_in)
    : rank(rank_in), world(world_in), options(std::move(options_in)), slots(options.slots()), matcher(world_in) {
  RONDO_CHECK(0 <= rank && rank < world, "a rank of the world");
  for (int peer = 0; peer < world; ++peer) {
    const bool checked = peer != rank && options.checked && options.checked(peer);
    checked_.push_back(checked ? 1 : 0);
    readable_.push_back(peer != rank && options.read && !checked && options.readable(peer) ? 1 : 0);
  }
  RONDO_CHECK(options.pool_bytes <= kP2pMaxBytes && options.eager_bytes <= kP2pMaxBytes, "limits that memory can have");
}

std::string P2pContext::name(int peer) const {
  return options.peer_name ? options.peer_name(peer) : fmt::format("rank {}", peer);
}

Error P2pContext::mismatch(int from, int to, const P2pEnvelope& message, DType receive_dtype,
                           uint64_t receive_bytes) const noexcept {
  const bool types = message.dtype != receive_dtype;
  try {
    return {
        ErrorCode::kMismatch,
        fmt::format(
            "{} sent {} bytes of {} with tag {} to {}, whose receive takes at most {} bytes of {}: {}", name(from),
            message.bytes, dtype_name(message.dtype), message.tag, name(to), receive_bytes, dtype_name(receive_dtype),
            types ? "both calls must name the same dtype" : "the receive needs a buffer as long as the message"),
        {from, to}};
  } catch (...) {  // no memory for the text
    return {ErrorCode::kMismatch, {}, {}};
  }
}

// A probe sees the message and leaves it, so the next receive in the order is looked at. A matched probe takes the
// message; it stays posted until keep() ends it, since its message must be in the pool then.
P2pRequest* P2pContext::receive_for(const P2pEnvelope& message, int peer) noexcept {
  for (;;) {
    P2pRequest* const first = matcher.find_receive(peer, message.tag);
    if (first == nullptr || first->kind == MessageKind::kMatchedProbe) return nullptr;
    matcher.take(*first);
    if (!first->probes()) return first;
    first->message = {peer, static_cast<int>(message.tag), message.bytes};
    done(*first);
  }
}

void P2pContext::keep(P2pMessage& message) noexcept {
  if (P2pRequest* const probe = matcher.take_receive(message.peer, message.envelope.tag)) {
    found(*probe, message);
  } else {
    matcher.add(message);
  }
}

void P2pContext::found(P2pRequest& probe, P2pMessage& message) noexcept {
  probe.message = {message.peer, static_cast<int>(message.envelope.tag), message.envelope.bytes};
  if (probe.kind == MessageKind::kMatchedProbe) probe.message.matched = matcher.claim(message);
  done(probe);
}

// A message that was longer than its buffer ends the receive alone with kTruncated; the communicator goes on.
void P2pContext::received(P2pRequest& receive) noexcept {
  const Message& message = receive.message;
  if (message.bytes <= receive.bytes) return done(receive);
  Error error{ErrorCode::kTruncated, {}, {}};
  error.tag = message.tag;
  try {
    error.message = fmt::format("{} sent {} bytes with tag {} to {}, whose buffer takes {}: it has the beginning",
                                name(message.peer), message.bytes, message.tag, name(rank), receive.bytes);
    error.ranks = {message.peer};
  } catch (...) {  // no memory for the text
  }
  fail(receive, error);
}

void P2pContext::done(P2pRequest& request) noexcept {
  request.next_done = nullptr;
  (last_done_ ? last_done_->next_done : first_done_) = &request;
  last_done_ = &request;
}

void P2pContext::fail(P2pRequest& request, const Error& error) noexcept {
  keep_error(error, request.cause);
  done(request);
}

// complete() may submit further requests, which come to the end of this list. A request may be gone when it
// returns, so the next one and the cause are read before.
bool P2pContext::run_done() {
  bool any = false;
  while (P2pRequest* request = first_done_) {
    first_done_ = request->next_done;
    if (!first_done_) last_done_ = nullptr;
    any = true;
    if (request->cause.ok()) {
      request->complete(nullptr);
    } else {
      const Error error = std::move(request->cause);  // complete() may destroy the request
      request->complete(&error);
    }
  }
  return any;
}

// Without memory for the text the code alone is kept.
void P2pContext::set_failure(const Error& error) noexcept {
  if (!failure_) keep_error(error, failure_.emplace());
}

void P2pContext::link_failed(int peer, const Error& error) noexcept {
  try {
    link_failures_.emplace_back(peer, error);
  } catch (...) {
    set_failure(caught());
  }
}

std::optional<std::pair<int, Error>> P2pContext::take_link_failure() {
  if (link_failures_.empty()) return std::nullopt;
  auto failure = std::move(link_failures_.back());
  link_failures_.pop_back();
  return failure;
}

}  // namespace rondo
