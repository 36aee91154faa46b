#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ring/base/node_list.h"
#include "ring/engine/p2p/batch.h"
#include "ring/engine/p2p/context.h"
#include "transport/byte_stream.h"

namespace rondo {

// One peer's messages to this rank: the reading half of the stream that the peer opened, and the credits and answers
// that go back on it.
//
// An eager payload goes into the buffer of its receive if there is one when the envelope is read, else into the pool;
// if the receive comes while the payload arrives, the rest goes into its buffer. A long payload always goes into the
// receive's buffer, without a copy but for what came in the same read as its envelope. Where the stream lends its
// memory nothing is read ahead: each byte is copied once, to where it belongs. Of a message that is longer than a
// receive which takes its beginning, an eager payload goes into the pool first; of a long one no more is asked for.
// Where the sender lets it, this rank reads a long payload from the sender's memory, and then clears the message; the
// receive is complete once the sender has answered that the memory lay still.
class P2pReceiver {
 public:
  P2pReceiver(P2pContext& context, int peer);
  ~P2pReceiver();

  bool opened() const { return opened_; }
  // Takes the stream, and the memory that refuse() needs. Nothing has happened if it throws.
  void open(std::unique_ptr<ByteStream> stream);

  // Reads what has come, as much as is fair to the other streams. until_empty: also after a read that came back
  // short. True if a byte moved; if pull(true) is false, the stream has no more.
  bool pull(bool until_empty);
  // The short way of a receive that nothing comes before (P2pMatcher::nothing_before). It takes the next
  // message if all of it lies in memory that the stream lends, and if it fits the receive. Else nothing has
  // happened.
  P2pAtOnce take_now(const P2pCall& receive, Message& came);
  // Writes answers and credits.
  bool push() { return has_answers() && push_some(); }
  // A receive waits for something on this stream; once the peer has left, one that is not cleared yet waits for
  // its end.
  bool awaited() const;

  // A message of this peer has met its receive; it was just taken out of the matcher. Gives the message back to
  // the pool.
  void accept(P2pMessage& message, P2pRequest& receive) noexcept;

  // The peer reads nothing any more. An answer would be worse than none: the peer's kernel would reset the
  // connection, and drop what it has not sent yet.
  void stop_answering();
  // No message will come any more.
  bool over() const { return over_; }
  // Reports a stream that is over as failed, once, if receives wait that name the peer. Not for peers that have
  // left.
  void report_if_named();
  // The stream is closed; receives that are being filled, or should be from now on, fail with the error.
  void end(const Error& error) noexcept;
  // end() in good order: the stream stays open, and what comes is thrown away.
  void drain(const Error& error) noexcept;
  // Nothing to write, and no receive being filled. Credits that are not due may be owed.
  bool idle() const;

 private:
  // The place that the payload which is being read goes to.
  enum class Into { kNothing, kReceive, kMessage, kDiscard };

  // Reading. The peer may write anything into a frame, so each number is compared with what this rank expects.
  bool read_some(bool until_empty, bool* moved);
  bool take_in_place();
  size_t parse_some(std::span<const std::byte> bytes);
  void parse();
  void take_payload(size_t bytes);
  const char* take(const P2pEnvelope& envelope);  // nullptr, or what is wrong with it
  const char* take_eager(const P2pEnvelope& envelope);
  const char* take_request(const P2pEnvelope& envelope);
  const char* take_data(const P2pEnvelope& envelope);
  const char* count(const P2pEnvelope& envelope);
  void payload_done();
  void take_beginning(P2pMessage& message, P2pRequest& receive) noexcept;
  void start_receive(P2pRequest& receive, const P2pEnvelope& envelope);
  // Answering: what they leave in the lists below is written by compose().
  void clear_later(P2pRequest& receive) noexcept;
  void refuse(const P2pEnvelope& envelope, P2pRequest& receive) noexcept;
  void owe(const P2pEnvelope& envelope);
  bool credit_due() const;
  bool has_answers() const {
    return !batch_.empty() || !refusals_.empty() || !clearing_.empty() || (owed_slots_ > 0 && credit_due());
  }
  bool read_peer();
  bool push_some();
  void compose();
  void protocol_error(const char* wrong, ErrorCode code = ErrorCode::kProtocol);
  void close() noexcept;
  void report() noexcept;
  void forget_message() noexcept;
  void fail_all(const Error& error) noexcept;

  P2pContext& context_;
  const int peer_;
  std::unique_ptr<ByteStream> stream_;
  bool opened_ = false;
  bool over_ = false;
  bool ended_ = false;  // kEnd was read
  bool draining_ = false;
  bool lends_ = false;  // the stream: view()
  bool reported_ = false;
  bool write_over_ = false;
  Error link_error_;  // why the stream is over
  Error end_error_;   // of end(): what later receives fail with

  // --- reading. buffer_[head_, tail_) is read and not yet parsed; while a payload is unfinished it is empty.
  std::unique_ptr<std::byte[]> buffer_;
  size_t head_ = 0;
  size_t tail_ = 0;
  P2pEnvelope envelope_;       // of the payload that is being read
  uint64_t payload_left_ = 0;  // bytes
  uint32_t payload_sum_ = 0;   // on checked streams: of those that have come
  Into into_ = Into::kNothing;
  std::byte* landing_at_ = nullptr;  // where its next byte goes; unless kDiscard
  P2pRequest* receive_ = nullptr;  // kReceive; for kData also in filling_. kMessage: what takes its beginning, or null
  P2pMessage* message_ = nullptr;  // kMessage; in the matcher unless receive_ takes its beginning
  uint64_t sequence_ = 0;          // that the next message must have

  // --- answering
  NodeList<P2pRequest> clearing_;  // matched to a request, kClear not yet said; or being read
  NodeList<P2pRequest> filling_;   // kClear said, payload not complete
  std::vector<P2pEnvelope> refusals_;
  P2pBatch batch_;
  // The peer's credit that it has taken and was not given back; and how much of that could be given back now.
  uint64_t held_bytes_ = 0;
  uint64_t owed_bytes_ = 0;
  uint64_t held_slots_ = 0;
  uint64_t owed_slots_ = 0;
};

}  // namespace rondo
