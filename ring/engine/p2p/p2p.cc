#include "ring/engine/p2p/p2p.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

// A peer's first message is late by the second number of passes at most (a microsecond).
constexpr int kVainLooks = 64;
constexpr uint32_t kPassesPerLook = 16;

}  // namespace

P2p::P2p(int rank, int world, const P2pOptions& options, P2pStreams& streams)
    : context_(rank, world, options), streams_(streams), loopback_(context_) {
  for (int peer = 0; peer < world; ++peer) {
    senders_.push_back(peer == rank ? nullptr : std::make_unique<P2pSender>(context_, peer));
    receivers_.push_back(peer == rank ? nullptr : std::make_unique<P2pReceiver>(context_, peer));
  }
  presence_.assign(static_cast<size_t>(world), Presence::kHere);
}

P2p::~P2p() = default;

bool P2p::submit(P2pRequest& request) {
  request.moved = 0;
  if (!request.cause.ok()) request.cause = {};
  bool waits = false;
  if (!end_error_.ok()) {
    context_.fail(request, end_error_);
  } else if (request.sends()) {
    send(request);
  } else {
    waits = recv(request);
  }
  context_.run_done();
  return waits;
}

void P2p::send(P2pRequest& request) {
  RONDO_CHECK(0 <= request.peer && request.peer < context_.world && request.tag >= 0, "a checked send");
  if (request.peer == context_.rank) {
    loopback_.add(request);
  } else {
    senders_[request.peer]->add(request);
  }
}

bool P2p::recv(P2pRequest& request) {
  RONDO_CHECK(kAnySource <= request.peer && request.peer < context_.world && request.tag >= kAnyTag,
              "a checked receive");
  P2pMatcher& matcher = context_.matcher;
  P2pMessage* const message = request.matched != 0                  ? matcher.take_claimed(request.matched)
                              : request.kind == MessageKind::kProbe ? matcher.find_message(request)
                                                                    : matcher.take_message(request);
  if (message != nullptr) {
    if (request.probes()) {
      context_.found(request, *message);
    } else if (message->peer == context_.rank) {
      loopback_.accept(*message, request);
    } else {
      receivers_[message->peer]->accept(*message, request);
    }
  } else if (request.matched != 0) {
    context_.fail(request, {ErrorCode::kInvalid,
                            fmt::format("no message waits for the receive of the matched probe {} on {}: a matched "
                                        "message is received once",
                                        request.matched, context_.name(context_.rank)),
                            {}});
  } else if (request.peer == kAnySource && alone()) {
    context_.fail(request, all_left_error());
  } else if (request.peer >= 0 && presence_[request.peer] == Presence::kGone) {
    context_.fail(request, left_error(request.peer));
  } else {
    matcher.post(request);
    return true;
  }
  return false;
}

P2pAtOnce P2p::at_once(const P2pCall& call, Message& moved) {
  if (!end_error_.ok() || !call.plain) return P2pAtOnce::kNot;
  if (!call.sends()) return recv_now(call, moved);
  if (call.peer == context_.rank || !senders_[call.peer]->send_now(call)) return P2pAtOnce::kNot;
  moved = {call.peer, call.tag, call.bytes};
  return P2pAtOnce::kOver;
}

P2pAtOnce P2p::recv_now(const P2pCall& receive, Message& came) {
  if (receive.peer != kAnySource) return recv_now_from(receive.peer, receive, came);
  // A peer's first message is looked for by progress().
  if (streams_from_ < context_.world - 1 && ++passes_ % kPassesPerLook == 0) return P2pAtOnce::kNot;
  for (int i = 0; i < context_.world; ++i) {
    const int peer = (turn_ + i) % context_.world;
    if (peer == context_.rank || !receivers_[peer]->opened()) continue;
    const P2pAtOnce found = recv_now_from(peer, receive, came);
    if (found == P2pAtOnce::kOver) turn_ = (peer + 1) % context_.world;
    if (found != P2pAtOnce::kNothingYet) return found;
  }
  return P2pAtOnce::kNothingYet;
}

P2pAtOnce P2p::recv_now_from(int peer, const P2pCall& receive, Message& came) {
  if (peer == context_.rank || !context_.matcher.nothing_before(peer)) return P2pAtOnce::kNot;
  return receivers_[peer]->take_now(receive, came);
}

bool P2p::take_back(P2pRequest& request, const Error& error) {
  if (!withdraw(request)) return false;
  context_.fail(request, error);
  context_.run_done();
  return true;
}

bool P2p::progress(P2pSweep sweep) {
  if (failed_) return context_.run_done();
  // A look takes locks: while none comes, polling looks seldom.
  const bool look = sweep == P2pSweep::kAll || vain_looks_ < kVainLooks || ++passes_ % kPassesPerLook == 0;
  bool moved = look && take_streams_from();
  vain_looks_ = moved ? 0 : std::min(vain_looks_ + 1, kVainLooks);
  moved |= push();
  if (pull(sweep)) {
    moved = true;
    push();  // the answers to what has come
  }
  look_for_ends();
  return context_.run_done() || moved;
}

bool P2p::take_streams_from() {
  bool moved = false;
  while (streams_from_ < context_.world - 1) {
    auto taken = streams_.take_stream_from();
    if (!taken) break;
    moved = true;
    const int peer = taken->first;
    RONDO_CHECK(0 <= peer && peer < context_.world && peer != context_.rank, "a stream of a peer");
    if (receivers_[peer]->opened()) {
      context_.set_failure(
          {ErrorCode::kProtocol, fmt::format("{} opened a second point-to-point stream", context_.name(peer)), {peer}});
      continue;
    }
    receivers_[peer]->open(std::move(taken->second));
    ++streams_from_;
  }
  return moved;
}

bool P2p::push() {
  bool moved = false;
  for (int peer = 0; peer < context_.world; ++peer) {
    if (peer == context_.rank) continue;
    P2pSender& sender = *senders_[peer];
    if (sender.wants_stream()) {
      if (auto stream = streams_.take_stream_to(peer)) {
        sender.open(std::move(stream));
        moved = true;
      }
    }
    moved |= sender.push();
    moved |= receivers_[peer]->push();
  }
  return moved;
}

// Beginning at another peer each time, so that receives from any source are not always the same peer's.
bool P2p::pull(P2pSweep sweep) {
  const bool all = sweep == P2pSweep::kAll;
  bool moved = false;
  for (int i = 0; i < context_.world; ++i) {
    const int peer = (turn_ + i) % context_.world;
    if (peer == context_.rank) continue;
    if (all || senders_[peer]->awaited()) moved |= senders_[peer]->pull(all);
    if (all || receivers_[peer]->awaited()) moved |= receivers_[peer]->pull(all);
  }
  turn_ = (turn_ + 1) % context_.world;
  return moved;
}

void P2p::peer_left(int peer) {
  RONDO_CHECK(0 <= peer && peer < context_.world && peer != context_.rank, "a peer");
  if (presence_[peer] != Presence::kHere) return;
  presence_[peer] = Presence::kLeft;
  senders_[peer]->peer_left(left_error(peer));
  receivers_[peer]->stop_answering();
  if (!failed_) {
    take_streams_from();
    look_for_ends();
  }
  context_.run_done();
}

// Requires that take_streams_from() was called since the last goodbye.
void P2p::look_for_ends() {
  for (int peer = 0; peer < context_.world; ++peer) {
    if (peer == context_.rank) continue;
    P2pReceiver& receiver = *receivers_[peer];
    if (presence_[peer] == Presence::kHere) {
      receiver.report_if_named();
    } else if (presence_[peer] == Presence::kLeft && (receiver.over() || !receiver.opened())) {
      gone(peer);
    }
  }
}

void P2p::gone(int peer) {
  const Error error = left_error(peer);
  presence_[peer] = Presence::kGone;
  ++gone_;
  receivers_[peer]->end(error);
  fail_receives(peer, error);
  if (alone()) fail_receives(kAnySource, all_left_error());
}

void P2p::fail_receives(int peer, const Error& error) noexcept {
  while (P2pRequest* request = context_.matcher.pop_receive(peer)) context_.fail(*request, error);
}

Error P2p::left_error(int peer) const {
  return {ErrorCode::kPeerLeft,
          fmt::format("{} destroyed its communicator; no message can be exchanged with it", context_.name(peer)),
          {peer}};
}

Error P2p::all_left_error() const {
  Error error{ErrorCode::kPeerLeft, "every other rank destroyed its communicator; no message can come", {}};
  for (int peer = 0; peer < context_.world; ++peer) {
    if (peer != context_.rank) error.ranks.push_back(peer);
  }
  return error;
}

void P2p::fail(const Error& error) noexcept {
  if (std::exchange(failed_, true)) return;  // submit() leaves nothing behind it
  if (end_error_.ok()) keep_error(error, end_error_);
  for (int peer = 0; peer < context_.world; ++peer) {
    fail_receives(peer, error);
    if (peer == context_.rank) continue;
    senders_[peer]->end(error);
    receivers_[peer]->end(error);
    while (P2pMessage* message = context_.matcher.pop_message(peer)) context_.pool.give(message);
  }
  fail_receives(kAnySource, error);
  loopback_.end(error);
  context_.run_done();
}

void P2p::finish(const Error& error) noexcept {
  if (end_error_.ok()) keep_error(error, end_error_);
  for (int peer = 0; peer < context_.world; ++peer) {
    fail_receives(peer, error);
    if (peer == context_.rank) continue;
    senders_[peer]->finish(error);
    receivers_[peer]->drain(error);
  }
  fail_receives(kAnySource, error);
  loopback_.end(error);
  context_.run_done();
}

bool P2p::idle() const {
  if (context_.matcher.posted() || !loopback_.idle()) return false;
  for (int peer = 0; peer < context_.world; ++peer) {
    if (peer != context_.rank && !(senders_[peer]->idle() && receivers_[peer]->idle())) return false;
  }
  return true;
}

}  // namespace rondo
