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

// Equal on all ranks, but for peer_name.
struct P2pOptions {
  uint64_t communicator = 0;
  uint64_t eager_bytes = 256 * 1024;  // messages up to here are sent before they are asked for
  uint64_t pool_bytes = 1 << 20;      // of a peer's eager messages (by p2p_charge) that wait for their receives
  // "rank 3 (host b, pid 17)", for messages; empty: "rank 3".
  std::function<std::string(int)> peer_name = {};
  // Whether frames to and from a peer carry checksums; empty: none do. Asked once, by P2pContext().
  std::function<bool(int)> checked = {};
  // Nanoseconds, growing: ways are tried where streams have a choice. Empty: none are.
  MessageTrials::Clock now_ns = {};
  // Copies from the memory of a peer's process, which keeps it as it is meanwhile; false: that did not work. Empty: no
  // message is read.
  std::function<bool(int peer, uint64_t address, std::byte* to, size_t bytes)> read = {};
  // Whether that may work with a peer, both ways. Asked once, by P2pContext().
  std::function<bool(int)> readable = {};
  bool always_read = false;  // then what is asked for is read, without trials

  // Messages of a peer, eager or not, that wait for their receives: as many as the smallest charge would fit.
  uint32_t slots() const;
};

// What the two directions of all peers of one P2p share.
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
  // The receive that a message of the peer goes to, taken out. Probes that come before it end. nullptr: there is none,
  // or a matched probe comes first; then keep() is to follow.
  P2pRequest* receive_for(const P2pEnvelope& message, int peer) noexcept;
  // The message waits for its receive.
  void keep(P2pMessage& message) noexcept;
  // A probe that is in no list has found a message, which is in none where the probe is a matched one.
  void found(P2pRequest& probe, P2pMessage& message) noexcept;
  // What the receive takes of its message has come.
  void received(P2pRequest& receive) noexcept;

  // The error of a message that does not fit, the same text on both sides. `receive_dtype` and `receive_bytes` are the
  // receive's. Without memory it has no text.
  Error mismatch(int from, int to, const P2pEnvelope& message, DType receive_dtype,
                 uint64_t receive_bytes) const noexcept;
  Error mismatch(int from, const P2pEnvelope& message, const P2pCall& receive) const noexcept {
    return mismatch(from, rank, message, receive.dtype, receive.bytes);
  }

  // Requests end here, and are in no other list then. Whatever takes one out of a list throws nothing before it is in
  // another, since a request in no list would never end. complete() is called by run_done(), when no list is walked.
  void done(P2pRequest& request) noexcept;
  void fail(P2pRequest& request, const Error& error) noexcept;
  bool run_done();

  // The communicator is over: ranks made different calls, or a peer broke the protocol. The first one stays.
  void set_failure(const Error& error) noexcept;
  const std::optional<Error>& failure() const { return failure_; }

  // A stream to or from the peer ended while something depended on it. Two a peer at most. Without memory for it the
  // communicator is over.
  void link_failed(int peer, const Error& error) noexcept;
  std::optional<std::pair<int, Error>> take_link_failure();

 private:
  std::vector<char> checked_, readable_;  // by peer
  P2pRequest* first_done_ = nullptr;
  P2pRequest* last_done_ = nullptr;
  std::optional<Error> failure_;
  std::vector<std::pair<int, Error>> link_failures_;
};

}  // namespace rondo
