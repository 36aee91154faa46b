#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ring/engine/p2p/matcher.h"
#include "ring/engine/p2p/message_trials.h"
#include "ring/engine/p2p/pool.h"
#include "ring/engine/p2p/request.h"
#include "ring/engine/p2p/wire.h"
#include "rondo/error.h"

namespace rondo {

// The settings of one P2p. Equal on all ranks, but for peer_name.
struct P2pOptions {
  uint64_t communicator = 0;
  uint64_t eager_bytes = 256 * 1024;  // messages up to here are sent before they are asked for
  uint64_t pool_bytes = 1 << 20;      // of a peer's eager messages (by p2p_charge) that wait for their receives
  // The peer in messages, "rank 3 (host b, pid 17)"; empty: "rank 3".
  std::function<std::string(int)> peer_name = {};
  // Whether frames to and from a peer carry checksums; empty: none do. Asked once, by P2pContext().
  std::function<bool(int)> checked = {};
  // A clock in nanoseconds, with which ways of a message are tried where a stream has a choice. Empty: none
  // are.
  MessageTrials::Clock now_ns = {};
  // Copies from the memory of a peer's process, which must not change meanwhile. False: that did not work.
  // Empty: payloads are never read in the sender's memory.
  std::function<bool(int peer, uint64_t address, std::byte* to, size_t bytes)> read = {};
  // Whether that may work with a peer, both ways. Asked once, by P2pContext().
  std::function<bool(int)> readable = {};
  bool always_read = false;  // then what is asked for is read, without trials

  // The most messages of a peer that may wait for their receives, eager or not: as many as the smallest charge
  // would fit.
  uint32_t slots() const;
};

// What senders, receivers and loopback of one P2p share: its options, the lists of receives and messages, and
// the requests that are over. P2p owns it. One thread at a time.
class P2pContext {
 public:
  P2pContext(int rank, int world, P2pOptions options);

  const int rank;
  const int world;
  const P2pOptions options;
  const uint32_t slots;  // options.slots()
  P2pMatcher matcher;
  P2pPool pool;
  uint64_t moved_bytes = 0;  // by all streams, both ways

  std::string name(int peer) const;
  bool checked(int peer) const { return checked_[static_cast<size_t>(peer)] != 0; }
  // The peer's memory can be read, as far as the options say.
  bool readable(int peer) const { return readable_[static_cast<size_t>(peer)] != 0; }
  // The message fits the receive: same dtype, no longer than the buffer.
  static bool fits(const P2pEnvelope& message, const P2pCall& receive) {
    return message.dtype == receive.dtype && message.bytes <= receive.bytes;
  }
  // The receive takes the message, or the beginning of one that is longer than its buffer.
  static bool takes(const P2pEnvelope& message, const P2pCall& receive) {
    return fits(message, receive) || (receive.truncate && message.dtype == receive.dtype);
  }
  // Takes out the receive that a message of the peer goes to; probes that come before it end. nullptr: there is
  // none, or a matched probe comes first. Then keep() must follow.
  P2pRequest* receive_for(const P2pEnvelope& message, int peer) noexcept;
  // Lets the message wait for its receive, or ends the matched probe that it belongs to.
  void keep(P2pMessage& message) noexcept;
  // A probe has found a message. The probe is in no list; the message is in none either if the probe is a
  // matched one.
  void found(P2pRequest& probe, P2pMessage& message) noexcept;
  // All bytes that the receive takes of its message have come: it ends, with kTruncated if the message was
  // longer.
  void received(P2pRequest& receive) noexcept;

  // The error of a message that does not fit its receive: the same text on both ranks. receive_dtype,
  // receive_bytes: the receive's. Without memory it has no text.
  Error mismatch(int from, int to, const P2pEnvelope& message, DType receive_dtype,
                 uint64_t receive_bytes) const noexcept;
  Error mismatch(int from, const P2pEnvelope& message, const P2pCall& receive) const noexcept {
    return mismatch(from, rank, message, receive.dtype, receive.bytes);
  }

  // Requests end here, and are in no list afterwards. A function that takes a request out of a list must put it
  // into another before it can throw: a request in no list would never end. complete() is called later, by
  // run_done(): no list is being walked then, so it may submit the next request.
  void done(P2pRequest& request) noexcept;
  void fail(P2pRequest& request, const Error& error) noexcept;
  bool run_done();

  // The communicator is over: ranks made different calls, or a peer broke the protocol. The first error stays.
  void set_failure(const Error& error) noexcept;
  const std::optional<Error>& failure() const { return failure_; }

  // A stream to or from the peer ended, and a request depends on it. At most two for each peer. Without memory
  // to keep it the communicator is over.
  void link_failed(int peer, const Error& error) noexcept;
  std::optional<std::pair<int, Error>> take_link_failure();

 private:
  std::vector<char> checked_, readable_;  // by peer
  // The requests that are over, in that order, linked by next_done. run_done() calls their complete().
  P2pRequest* first_done_ = nullptr;
  P2pRequest* last_done_ = nullptr;
  // The first error that ends the communicator.
  std::optional<Error> failure_;
  std::vector<std::pair<int, Error>> link_failures_;
};

}  // namespace rondo
