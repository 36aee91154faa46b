#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ring/base/node_list.h"
#include "ring/engine/p2p/batch.h"
#include "ring/engine/p2p/context.h"
#include "transport/byte_stream.h"

namespace rondo {

// This rank's messages to one peer: the writing half of the stream that this rank opened, and the credits and
// answers that come back on it.
//
// An eager send goes through the lists queue -> writing; any other through queue -> awaiting -> cleared ->
// writing. It is complete when the stream has taken the last byte that its receive takes. A synchronous send is
// never eager. If the receiver reads the payload in this rank's memory, it clears the message when it has read
// it; what is then written says that the memory lay still until then.
class P2pSender {
 public:
  P2pSender(P2pContext& context, int peer);

  void add(P2pRequest& request) noexcept;
  // The short way: writes a whole message over a stream that needs no system call, if no other message waits.
  // False: nothing has happened.
  bool send_now(const P2pCall& message);

  // True: the stream is needed, and not there. Once asked for, it is taken whatever becomes of the message,
  // since the peer looks for the end of every stream that was asked for.
  bool ask_for_stream() {
    asked_ = asked_ || !queue_.empty();
    return lacks_stream();
  }
  // Takes the stream. Nothing has happened if it throws.
  void open(std::unique_ptr<ByteStream> stream);

  // Writes what can be written, as much as is fair to the other streams. True if a byte moved. Costs some loads
  // while there is nothing.
  bool push() { return (!batch_.empty() || !queue_.empty() || !cleared_.empty()) && push_some(); }
  // Reads what has come back; until_empty: until the stream has no more, else until a read came back short.
  bool pull(bool until_empty);
  // Something must come back before the sends can go on.
  bool awaited() const { return stream_ && (!awaiting_.empty() || !queue_.empty()); }

  // The peer has said goodbye. What it answered before counts: an empty send that it has cleared succeeds. All
  // others end().
  void peer_left(const Error& error);
  // Every send fails with the error, later ones too; the stream is closed.
  void end(const Error& error) noexcept;
  // Every send fails with the error; the peer is told that no more will come, unless it is in the middle of a message.
  void finish(const Error& error) noexcept;
  // No send is pending, and nothing is left to be written.
  bool idle() const;

 private:
  P2pEnvelope eager(DType dtype, int tag, uint64_t bytes) const;
  bool push_some();
  bool short_of_credit() const;
  void compose();
  void start(P2pRequest& request);
  void add_piece();
  // bytes, here and below: of the message.
  bool tried(uint64_t bytes) const { return trials_ && bytes >= MessageTrials::kFewestBytes; }
  // Sets how the stream writes this message. Streams copy payloads shorter than kFewestStreamed through the
  // caches in any case.
  void use_stores(uint64_t bytes) {
    if (!trials_ || bytes < kFewestStreamed) return;
    stream_->set_stores(tried(bytes) && trials_->of(bytes).way().streamed ? Stores::kStreamed : Stores::kCached);
  }
  // A message has begun.
  void count(uint64_t bytes) {
    if (tried(bytes)) trials_->of(bytes).count(context_.options.now_ns);
  }
  bool offers(const P2pRequest& request) const;
  // These say what each frame that has come back means. A peer may write anything into it, so each number is compared
  // with what this rank has sent.
  void parse();
  const char* take(const P2pEnvelope& envelope);  // nullptr, or what is wrong with it
  const char* clear(const P2pEnvelope& envelope);
  void refuse(const P2pEnvelope& envelope) noexcept;
  void broke(const Error& error) noexcept;
  void discard_answers() noexcept;
  bool lacks_stream() const { return asked_ && !stream_ && !broken_ && !finished_; }
  void fail_all(const Error& error) noexcept;
  void tell_end() noexcept;

  P2pContext& context_;
  const int peer_;
  std::unique_ptr<ByteStream> stream_;
  bool asked_ = false;                         // for it
  std::unique_ptr<PeerMessageTrials> trials_;  // null: the stream has no choice, or none are tried
  bool read_ = false;                          // the peer reads messages that are asked for, as far as it is known
  bool broken_ = false;
  bool reported_ = false;
  bool finished_ = false;
  Error link_error_;  // why it is broken
  Error end_error_;   // of end(): what later sends fail with

  // A request is in exactly one of these lists until it is over.
  NodeList<P2pRequest> queue_;     // not yet announced
  NodeList<P2pRequest> awaiting_;  // requested, not yet cleared
  NodeList<P2pRequest> cleared_;   // payload partly written
  NodeList<P2pRequest> writing_;   // complete when the batch is written
  P2pBatch batch_;
  uint64_t sequence_ = 0;  // of the next message
  uint64_t credit_;        // bytes of the peer's pool
  uint32_t slots_;         // messages that the peer still takes

  std::array<std::byte, 16 * kP2pEnvelopeBytes> buffer_;  // what has come back
  size_t buffered_ = 0;
};

}  // namespace rondo
