#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ring/engine/p2p/context.h"
#include "ring/engine/p2p/loopback.h"
#include "ring/engine/p2p/receiver.h"
#include "ring/engine/p2p/request.h"
#include "ring/engine/p2p/sender.h"
#include "rondo/error.h"
#include "transport/byte_stream.h"

namespace rondo {

// Gives P2p its streams. Ranks are those of the communicator. The calls are the fabric's of these names.
class P2pStreams {
 public:
  virtual ~P2pStreams() = default;
  // The stream that carries this rank's messages to `peer`; asked for by the first call. nullptr: not there yet.
  virtual std::unique_ptr<ByteStream> take_stream_to(int peer) = 0;
  // A stream that a peer has opened to this rank, with that peer.
  virtual std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from() = 0;
};

// Which streams a pass of progress() reads.
enum class P2pSweep {
  kAll,      // all of them, until they have no more: before sleeping on their (edge-triggered) doorbell
  kAwaited,  // those that a request waits for, until a read comes back short: for polling
};

// Point to point messages of one communicator: a state machine without threads, clocks or sockets of its own. One
// thread at a time. docs/wire-p2p.md has the protocol, and why it neither deadlocks nor grows.
//
// Cost of an 8 byte ping-pong, polling with kAwaited: a side pays one write (envelope and payload together) and one
// read that finds something for each message, no allocation, and a pass of some ns for each peer that it has exchanged
// messages with; credits add one write in some 8,000 messages. Measured without system calls, both sides together
// (tests/p2p/cost_test, 2 cores shared with other work, g++ 12, November 2026): 0.28 us of processor time a message of
// 8 bytes, 0.33 us if its receive comes after it.
class P2p {
 public:
  P2p(int rank, int world, const P2pOptions& options, P2pStreams& streams);
  ~P2p();
  P2p(const P2p&) = delete;
  P2p& operator=(const P2p&) = delete;

  // Takes the request in; progress() moves it. It may be complete when this returns: to this rank itself, or
  // after a failure. The caller has checked the arguments: the peer is in the world, the tag is 0 .. 2^31-1 or
  // a receive's wildcard, there is data unless bytes is 0. If it throws, it has not taken the request, and
  // fail() must follow.
  //
  // True: it is a receive that waits for a message, so nothing has to be written for it now.
  bool submit(P2pRequest& request);
  // The short way instead of submit(). A send is on its way and its memory free, or a receive has taken the
  // message that is there, which `moved` describes. No message passes one that came first. Unless kOver,
  // nothing has happened.
  P2pAtOnce at_once(const P2pCall& call, Message& moved);
  // Ends a receive or probe that no message has met yet with the error. False: nothing has happened; the
  // message is coming, or it is a send.
  bool take_back(P2pRequest& request, const Error& error);
  // The same without completing it: the caller may destroy the request.
  bool withdraw(P2pRequest& request) noexcept { return context_.matcher.withdraw(request); }

  // Moves what can move without blocking, and completes what is done. True if anything happened. A thread may
  // sleep only after progress(kAll) has returned false with the doorbell armed.
  bool progress(P2pSweep sweep = P2pSweep::kAll);
  // The writing half of progress(): what a request that was just taken in needs first.
  bool push();

  // The peer has said goodbye. Requires that the streams which it had opened have reached P2pStreams. Sends to
  // it fail with kPeerLeft. Receives that name it fail when no message of it can come any more, receives from
  // any source when all peers are gone.
  void peer_left(int peer);
  // Everything pending fails with the error, as does every later request; all streams are closed.
  void fail(const Error& error) noexcept;
  // fail() in good order: the streams stay open, peers are told that no more messages come, and what they still send
  // is thrown away. Go on with progress() until idle(), and destroy this when all peers have said goodbye.
  void finish(const Error& error) noexcept;

  // Nothing is pending, and nothing is to be written: a driver may leave it alone until the next request or
  // ring.
  bool idle() const;

  // Why the communicator must be failed: a mismatch, or a peer's breach of the protocol. The requests that met
  // it are complete; the others wait for fail().
  const std::optional<Error>& failure() const { return context_.failure(); }
  // A stream that ended though something depends on it: for Fabric::link_failed(). The requests stay pending
  // until the fabric has found the true reason, which comes by fail() or peer_left(). Once for each stream.
  std::optional<std::pair<int, Error>> take_link_failure() { return context_.take_link_failure(); }

  // Bytes that all streams have moved, both ways; grows while a message comes on.
  uint64_t moved_bytes() const { return context_.moved_bytes; }

  // Memory of messages without a receive: in use, and at most (pool_bytes a peer).
  uint64_t pooled_bytes() const { return context_.pool.used_bytes(); }
  uint64_t pool_limit_bytes() const { return context_.options.pool_bytes * static_cast<uint64_t>(context_.world); }
  // Such messages.
  size_t pooled_messages() const { return context_.pool.messages(); }

 private:
  // Whether a peer can still send.
  enum class Presence : uint8_t {
    kHere,
    kLeft,  // said goodbye; messages may still be under way
    kGone,  // and none is
  };

  // Both directions between this rank and a peer. Made by the first message or stream, either way.
  struct Peer {
    Peer(P2pContext& context, int rank) : sender(context, rank), receiver(context, rank) {}
    P2pSender sender;
    P2pReceiver receiver;
  };
  Peer& peer(int rank) {
    Peer* const known = peers_[static_cast<size_t>(rank)].get();
    return known != nullptr ? *known : meet(rank);
  }
  Peer& meet(int rank);

  bool take_streams_from();
  bool pull(P2pSweep sweep);
  void look_for_ends();
  // The peer is kGone: receives that only it could have served fail with the reason.
  void gone(int peer);
  void fail_receives(int peer, const Error& error) noexcept;
  // The two kinds of submit(). recv() returns what submit() returns.
  void send(P2pRequest& request);
  bool recv(P2pRequest& request);
  P2pAtOnce recv_now(const P2pCall& receive, Message& came);
  P2pAtOnce recv_now_from(int peer, const P2pCall& receive, Message& came);
  // The texts name peers that have left, by rank of the communicator.
  Error left_error(int peer) const;
  Error all_left_error() const;
  // Every other rank is gone. A rank that is alone in its communicator from the start is not: it may still send to
  // itself.
  bool alone() const { return context_.world > 1 && gone_ == context_.world - 1; }

  P2pContext context_;
  P2pStreams& streams_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; nullptr: nothing has come or gone yet, or this rank
  std::vector<int> met_;                      // the ranks in peers_: a pass looks at these only
  P2pLoopback loopback_;
  std::vector<Presence> presence_;
  int gone_ = 0;          // peers that are kGone
  int streams_from_ = 0;  // taken
  int vain_looks_ = 0;    // looks in a row that found no new stream
  uint32_t passes_ = 0;   // since these are kVainLooks
  size_t turn_ = 0;       // of met_: the peer that the next progress() reads first
  Error end_error_;       // of fail() or finish()
  bool failed_ = false;
};

}  // namespace rondo
