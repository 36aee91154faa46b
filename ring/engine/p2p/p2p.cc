#include "ring/engine/p2p/p2p.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

// A look for new streams takes locks. After so many in vain only one pass in kPassesPerLook looks, so a peer's
// first message is late by that many passes: a microsecond.
constexpr int kVainLooks = 64;
constexpr uint32_t kPassesPerLook = 16;

}  // namespace

P2p::P2p(int rank, int world, const P2pOptions& options, P2pStreams& streams)
    : context_(rank, world, options),
      streams_(streams),
      peers_(static_cast<size_t>(world)),
      loopback_(context_),
      presence_(static_cast<size_t>(world), Presence::kHere) {}

P2p::~P2p() = default;

// The first message or stream of a peer, either way. What has happened to the peer before is made up for.
// Memory comes first: nothing has happened if this throws.
P2p::Peer& P2p::meet(int rank) {
  met_.reserve(met_.size() + 1);
  auto made = std::make_unique<Peer>(context_, rank);
  if (!end_error_.ok()) {  // finish() was before: what the peer sends is thrown away
    made->sender.finish(end_error_);
    made->receiver.drain(end_error_);
  }
  if (presence_[rank] != Presence::kHere) {
    made->sender.peer_left(left_error(rank));
    made->receiver.stop_answering();
  }
  if (presence_[rank] == Presence::kGone) made->receiver.end(left_error(rank));
  met_.push_back(rank);
  return *(peers_[static_cast<size_t>(rank)] = std::move(made));
}

// After fail() or finish() every request ends with that error at once.
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
    peer(request.peer).sender.add(request);
  }
}

// A message that is there is taken at once. Otherwise the receive is posted, unless nothing can come for it any
// more.
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
      peer(message->peer).receiver.accept(*message, request);
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

// The short way needs a stream to write to, and a peer that was met before. Messages to itself take the long one.
P2pAtOnce P2p::at_once(const P2pCall& call, Message& moved) {
  if (!end_error_.ok() || !call.plain) return P2pAtOnce::kNot;
  if (!call.sends()) return recv_now(call, moved);
  Peer* const known = peers_[static_cast<size_t>(call.peer)].get();
  if (known == nullptr || !known->sender.send_now(call)) return P2pAtOnce::kNot;
  moved = {call.peer, call.tag, call.bytes};
  return P2pAtOnce::kOver;
}

// The short way of a receive, from any source in turn. Now and then it gives up, so that progress() looks for
// streams of peers that have not sent before.
P2pAtOnce P2p::recv_now(const P2pCall& receive, Message& came) {
  if (receive.peer != kAnySource) return recv_now_from(receive.peer, receive, came);
  // A peer's first message is looked for by progress().
  if (streams_from_ < context_.world - 1 && ++passes_ % kPassesPerLook == 0) return P2pAtOnce::kNot;
  for (size_t i = 0; i < met_.size(); ++i) {
    const size_t place = (turn_ + i) % met_.size();
    if (!peer(met_[place]).receiver.opened()) continue;
    const P2pAtOnce found = recv_now_from(met_[place], receive, came);
    if (found == P2pAtOnce::kOver) turn_ = place + 1;
    if (found != P2pAtOnce::kNothingYet) return found;
  }
  return P2pAtOnce::kNothingYet;
}

// What waits in the lists came first, so nothing is taken past it.
P2pAtOnce P2p::recv_now_from(int peer, const P2pCall& receive, Message& came) {
  Peer* const known = peers_[static_cast<size_t>(peer)].get();
  if (known == nullptr || !context_.matcher.nothing_before(peer)) return P2pAtOnce::kNot;
  return known->receiver.take_now(receive, came);
}

// A request that has met a message is in no list of the matcher, and stays under way.
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

// A peer opens one stream to each rank; a second one is a breach of the protocol.
bool P2p::take_streams_from() {
  bool moved = false;
  while (streams_from_ < context_.world - 1) {
    auto taken = streams_.take_stream_from();
    if (!taken) break;
    moved = true;
    const int rank = taken->first;
    RONDO_CHECK(0 <= rank && rank < context_.world && rank != context_.rank, "a stream of a peer");
    P2pReceiver& receiver = peer(rank).receiver;
    if (receiver.opened()) {
      context_.set_failure(
          {ErrorCode::kProtocol, fmt::format("{} opened a second point-to-point stream", context_.name(rank)), {rank}});
      continue;
    }
    receiver.open(std::move(taken->second));
    ++streams_from_;
  }
  return moved;
}

// Asks for streams that messages need, then writes messages and answers. Each sender and receiver writes a
// bounded amount, so that no peer starves.
bool P2p::push() {
  bool moved = false;
  for (const int rank : met_) {
    auto& [sender, receiver] = peer(rank);
    if (sender.ask_for_stream()) {
      if (auto stream = streams_.take_stream_to(rank)) {
        sender.open(std::move(stream));
        moved = true;
      }
    }
    moved |= sender.push();
    moved |= receiver.push();
  }
  return moved;
}

// Reads, and begins at another peer each time, so that receives from any source do not always take the same
// peer's.
bool P2p::pull(P2pSweep sweep) {
  const bool all = sweep == P2pSweep::kAll;
  bool moved = false;
  for (size_t i = 0; i < met_.size(); ++i) {
    auto& [sender, receiver] = peer(met_[(turn_ + i) % met_.size()]);
    if (all || sender.awaited()) moved |= sender.pull(all);
    if (all || receiver.awaited()) moved |= receiver.pull(all);
  }
  ++turn_;
  return moved;
}

// Messages that the peer had sent may still lie in its stream, so its receives do not end here but when the
// stream has ended (look_for_ends). A peer that never opened one is gone at once.
void P2p::peer_left(int rank) {
  RONDO_CHECK(0 <= rank && rank < context_.world && rank != context_.rank, "a peer");
  if (presence_[rank] != Presence::kHere) return;
  presence_[rank] = Presence::kLeft;
  if (Peer* const known = peers_[static_cast<size_t>(rank)].get()) {
    known->sender.peer_left(left_error(rank));
    known->receiver.stop_answering();
  }
  if (!failed_) {
    take_streams_from();
    look_for_ends();
    if (!peers_[static_cast<size_t>(rank)]) gone(rank);
  }
  context_.run_done();
}

// Finds peers of which no message can come any more. Requires that take_streams_from() was called since the
// last goodbye: a stream that the peer had opened may hold messages.
void P2p::look_for_ends() {
  for (const int rank : met_) {
    P2pReceiver& receiver = peer(rank).receiver;
    if (presence_[rank] == Presence::kHere) {
      receiver.report_if_named();
    } else if (presence_[rank] == Presence::kLeft && (receiver.over() || !receiver.opened())) {
      gone(rank);
    }
  }
}

// Receives from any source fail with the last peer: until then another may still send.
void P2p::gone(int rank) {
  const Error error = left_error(rank);
  presence_[rank] = Presence::kGone;
  ++gone_;
  if (Peer* const known = peers_[static_cast<size_t>(rank)].get()) known->receiver.end(error);
  fail_receives(rank, error);
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

// Requests complete in run_done() at the end, when all streams are closed: nothing writes into a caller's
// buffer any more.
void P2p::fail(const Error& error) noexcept {
  if (std::exchange(failed_, true)) return;  // submit() leaves nothing behind it
  if (end_error_.ok()) keep_error(error, end_error_);
  for (int peer = 0; peer < context_.world; ++peer) {
    fail_receives(peer, error);
    if (peer == context_.rank) continue;
    if (Peer* const known = peers_[static_cast<size_t>(peer)].get()) {
      known->sender.end(error);
      known->receiver.end(error);
    }
    while (P2pMessage* message = context_.matcher.pop_message(peer)) context_.pool.give(message);
  }
  fail_receives(kAnySource, error);
  loopback_.end(error);
  context_.run_done();
}

// Like fail(), but peers still read what this rank has sent, and what they send is read and dropped: a socket
// with unread bytes would be reset when it is closed.
void P2p::finish(const Error& error) noexcept {
  if (end_error_.ok()) keep_error(error, end_error_);
  for (int peer = 0; peer < context_.world; ++peer) {
    fail_receives(peer, error);
    Peer* const known = peers_[static_cast<size_t>(peer)].get();
    if (known == nullptr) continue;
    known->sender.finish(error);
    known->receiver.drain(error);
  }
  fail_receives(kAnySource, error);
  loopback_.end(error);
  context_.run_done();
}

// Messages that wait in the pool are no work: they are thrown away if nobody receives them.
bool P2p::idle() const {
  if (context_.matcher.posted() || !loopback_.idle()) return false;
  return std::all_of(met_.begin(), met_.end(), [this](int rank) {
    const Peer& known = *peers_[static_cast<size_t>(rank)];
    return known.sender.idle() && known.receiver.idle();
  });
}

}  // namespace rondo
