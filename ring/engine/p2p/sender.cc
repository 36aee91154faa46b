#include "ring/engine/p2p/sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ring/base/caught.h"

namespace rondo {
namespace {

// A long payload goes in frames of this size, so that short messages pass between them. An envelope is 1/16384
// of it.
constexpr uint64_t kPieceBytes = 1 << 20;
// Writes to one stream in a pass: a peer that reads as fast as this rank writes delays the others by some MiB
// at most.
constexpr int kWritesATurn = 16;

}  // namespace

P2pSender::P2pSender(P2pContext& context, int peer)
    : context_(context), peer_(peer), credit_(context.options.pool_bytes), slots_(context.slots) {}

// Trials are for streams with a choice of stores, which go through memory. Reading by the peer is one of the
// ways above the eager limit, where messages are asked for anyway.
void P2pSender::open(std::unique_ptr<ByteStream> stream) {
  batch_.prepare(context_.checked(peer_));
  const P2pOptions& options = context_.options;
  read_ = context_.readable(peer_);
  if (options.now_ns && stream->set_stores(Stores::kCached)) {
    const bool tries = read_ && !options.always_read;
    trials_ = std::make_unique<PeerMessageTrials>(tries ? options.eager_bytes : UINT64_MAX);
  }
  stream_ = std::move(stream);
  if (!end_error_.ok()) tell_end();
}

// Whether the peer may read the payload in this rank's memory instead of being sent it.
bool P2pSender::offers(const P2pRequest& request) const {
  if (!read_) return false;
  if (context_.options.always_read) return true;
  return tried(request.bytes) && trials_->of(request.bytes).way().algorithm == Algorithm::kPull;
}

void P2pSender::add(P2pRequest& request) noexcept {
  if (!end_error_.ok()) return context_.fail(request, end_error_);
  queue_.push_back(request);
  if (broken_) broke(link_error_);
}

// Nothing may be under way to this peer, or the message would pass it. Credit is looked for only if there is
// too little.
bool P2pSender::send_now(const P2pCall& message) {
  if (!stream_ || !end_error_.ok() || !batch_.empty() || !queue_.empty() || !cleared_.empty()) return false;
  if (message.bytes > context_.options.eager_bytes || context_.checked(peer_)) return false;
  const uint64_t charge = p2p_charge(message.bytes);
  if (slots_ == 0 || charge > credit_) pull(false);
  if (slots_ == 0 || charge > credit_ || !stream_) return false;
  const P2pEnvelope envelope = eager(message.dtype, message.tag, message.bytes);
  use_stores(message.bytes);
  if (!stream_->write_whole(std::as_bytes(std::span(&envelope, 1)), {message.data, message.bytes})) return false;
  count(message.bytes);
  ++sequence_;
  --slots_;
  credit_ -= charge;
  context_.moved_bytes += kP2pEnvelopeBytes + message.bytes;
  return true;
}

// The envelope of the next message; start() makes it a request where it is not sent at once.
P2pEnvelope P2pSender::eager(DType dtype, int tag, uint64_t bytes) const {
  P2pEnvelope envelope;
  envelope.dtype = dtype;
  envelope.tag = static_cast<uint32_t>(tag);
  envelope.communicator = context_.options.communicator;
  envelope.bytes = bytes;
  envelope.sequence = sequence_;
  return envelope;
}

// Sends of a batch are complete when all of it is written: then no send's memory is referred to.
bool P2pSender::push_some() {
  bool moved = false;
  for (int i = 0; i < kWritesATurn && stream_; ++i) {
    if (batch_.empty() && short_of_credit()) pull(false);
    if (batch_.empty() && stream_) compose();
    if (batch_.empty()) break;
    const long written = batch_.write(*stream_);
    if (written < 0) broke(Error(stream_->error()));
    if (written <= 0) break;
    moved = true;
    context_.moved_bytes += static_cast<uint64_t>(written);
    if (!batch_.empty()) continue;
    while (P2pRequest* request = writing_.pop_front()) context_.done(*request);
  }
  return moved;
}

// The next message lacks nothing but credit. That may have come unread: nobody reads while nothing is awaited.
bool P2pSender::short_of_credit() const {
  const P2pRequest* next = queue_.front();
  if (next == nullptr) return false;
  return slots_ == 0 || (next->bytes <= context_.options.eager_bytes && p2p_charge(next->bytes) > credit_);
}

// Fills the batch: messages first, as many as the peer takes, then one piece of a long one. So neither holds up
// the other.
void P2pSender::compose() {
  const int kept = cleared_.empty() ? 0 : 1;
  while (batch_.room() > kept && !queue_.empty() && slots_ > 0) start(*queue_.pop_front());
  if (!cleared_.empty()) add_piece();
}

// Sends the message eagerly, or asks the peer for its receive if it is too long, synchronous, or short of
// credit.
void P2pSender::start(P2pRequest& request) {
  P2pEnvelope envelope = eager(request.dtype, request.tag, request.bytes);
  request.sequence = sequence_++;
  --slots_;
  count(request.bytes);
  if (!request.synchronous && request.bytes <= context_.options.eager_bytes && p2p_charge(request.bytes) <= credit_) {
    credit_ -= p2p_charge(request.bytes);
    use_stores(request.bytes);
    envelope.kind = P2pKind::kEager;
    batch_.add(envelope, request.data, request.bytes);
    writing_.push_back(request);
  } else {
    envelope.kind = P2pKind::kRequest;
    request.address = offers(request) ? reinterpret_cast<uintptr_t>(request.data) : 0;
    envelope.offset = request.address;
    batch_.add(envelope);
    awaiting_.push_back(request);
  }
}

// Adds the next piece of a cleared payload. If the receiver has read it in memory, the piece has 0 bytes and
// only says so. Long messages take turns: a payload with more to send goes to the end of the list.
void P2pSender::add_piece() {
  P2pRequest& request = *cleared_.front();
  cleared_.remove(request);
  P2pEnvelope envelope;
  envelope.kind = P2pKind::kData;
  envelope.communicator = context_.options.communicator;
  envelope.bytes = std::min(kPieceBytes, request.cleared - request.moved);
  envelope.sequence = request.sequence;
  envelope.offset = request.moved;
  use_stores(request.bytes);
  batch_.add(envelope, request.data + request.moved, envelope.bytes);
  request.moved += envelope.bytes;
  (request.moved == request.cleared ? writing_ : cleared_).push_back(request);
}

// Answers of the peer: credit, clearances, refusals.
bool P2pSender::pull(bool until_empty) {
  bool moved = false;
  while (stream_) {
    const iovec part{buffer_.data() + buffered_, buffer_.size() - buffered_};
    const long got = stream_->read(&part, 1);
    if (got < 0) broke(Error(stream_->error()));
    if (got <= 0) break;
    moved = true;
    context_.moved_bytes += static_cast<uint64_t>(got);
    buffered_ += static_cast<size_t>(got);
    parse();
    if (!until_empty && static_cast<size_t>(got) < part.iov_len) break;
  }
  return moved;
}

// An answer that is wrong or damaged fails the communicator. The stream is closed, since what follows cannot be
// trusted.
void P2pSender::parse() {
  size_t at = 0;
  for (; buffered_ - at >= kP2pEnvelopeBytes; at += kP2pEnvelopeBytes) {
    P2pEnvelope envelope;
    const bool checked = context_.checked(peer_);
    const bool damaged = checked && !p2p_intact(buffer_.data() + at);
    const char* wrong = damaged ? "an answer that arrived damaged"
                                : p2p_decode(buffer_.data() + at, context_.options.communicator, &envelope, checked);
    if (!wrong) wrong = take(envelope);
    if (!wrong) continue;
    context_.set_failure(
        {damaged ? ErrorCode::kCorrupt : ErrorCode::kProtocol,
         fmt::format("{} answered a message of {} with {}", context_.name(peer_), context_.name(context_.rank), wrong),
         {peer_}});
    broken_ = reported_ = true;
    stream_.reset();
    return;
  }
  buffered_ -= at;
  std::memmove(buffer_.data(), buffer_.data() + at, buffered_);
}

// A peer cannot give more credit than this rank has used: the sums stay below the options' limits.
const char* P2pSender::take(const P2pEnvelope& envelope) {
  switch (envelope.kind) {
    case P2pKind::kCredit:
      if (envelope.bytes > context_.options.pool_bytes - credit_) return "more credit than there is";
      if (envelope.slots > context_.slots - slots_) return "credit for more messages than there are";
      credit_ += envelope.bytes;
      slots_ += envelope.slots;
      return nullptr;
    case P2pKind::kClear:
      return clear(envelope);
    case P2pKind::kRefuse:
      if (envelope.sequence >= sequence_) return "the refusal of a message that was not sent";
      refuse(envelope);
      return nullptr;
    default:
      return "a frame that only senders send";
  }
}

// The receive of a request is there. A peer that was offered the memory and asks for the bytes could not read:
// from then on nothing is offered to it.
const char* P2pSender::clear(const P2pEnvelope& envelope) {
  for (P2pRequest* request = awaiting_.front(); request; request = request->next) {
    if (request->sequence != envelope.sequence) continue;
    if (envelope.bytes > request->bytes) return "the clearance of more than was requested";
    const bool read = envelope.offset != 0;
    if (read && (request->address == 0 || envelope.offset != envelope.bytes))
      return "the reading of what it may not read";
    if (request->address != 0 && !read && envelope.bytes > 0) {
      read_ = false;
      if (trials_) trials_->give_up_reading();
    }
    awaiting_.remove(*request);
    request->cleared = envelope.bytes;
    request->moved = envelope.offset;
    if (request->cleared > 0) {
      cleared_.push_back(*request);
    } else {
      context_.done(*request);
    }
    return nullptr;
  }
  if (finished_) return nullptr;  // given up meanwhile
  return "the clearance of a message that was not requested";
}

// A peer has met a receive that does not fit. The send may be over; the communicator fails with the same text
// as there.
void P2pSender::refuse(const P2pEnvelope& envelope) noexcept {
  const Error error = context_.mismatch(context_.rank, peer_, envelope, envelope.receive_dtype, envelope.offset);
  for (P2pRequest* request = awaiting_.front(); request; request = request->next) {
    if (request->sequence != envelope.sequence) continue;
    awaiting_.remove(*request);
    context_.fail(*request, error);
    break;
  }
  context_.set_failure(error);
}

// The stream has failed. Sends that depend on it stay pending, until the fabric has found the reason.
void P2pSender::broke(const Error& error) noexcept {
  if (!broken_) {
    broken_ = true;
    keep_error(error, link_error_);
    batch_.clear();
    stream_.reset();
  }
  const bool depends = !queue_.empty() || !awaiting_.empty() || !cleared_.empty() || !writing_.empty();
  if (!depends || reported_) return;
  reported_ = true;
  context_.link_failed(peer_, link_error_);
}

void P2pSender::fail_all(const Error& error) noexcept {
  for (NodeList<P2pRequest>* list : {&writing_, &cleared_, &awaiting_, &queue_}) {
    while (P2pRequest* request = list->pop_front()) context_.fail(*request, error);
  }
}

// Reads answers that nobody needs, before the socket is closed. A socket that is closed with unread bytes is
// reset, and loses what the peer's kernel has not taken yet.
void P2pSender::discard_answers() noexcept {
  constexpr int kMostReads = 1024;  // of a peer that goes on writing
  const iovec part{buffer_.data(), buffer_.size()};
  try {
    for (int i = 0; i < kMostReads && stream_ && stream_->read(&part, 1) > 0; ++i) {
    }
  } catch (...) {  // no memory to say why the stream is over
  }
}

void P2pSender::peer_left(const Error& error) {
  reported_ = true;  // the goodbye is the reason, whatever the stream says
  pull(true);
  end(error);
}

void P2pSender::end(const Error& error) noexcept {
  fail_all(error);
  batch_.clear();
  discard_answers();
  stream_.reset();
  broken_ = true;
  if (end_error_.ok()) keep_error(error, end_error_);
}

void P2pSender::finish(const Error& error) noexcept {
  fail_all(error);
  if (end_error_.ok()) keep_error(error, end_error_);
  tell_end();
}

// Tells the peer that no more messages come. In the middle of a payload of a caller's, which may not be touched
// any more, the stream is closed instead.
void P2pSender::tell_end() noexcept {
  if (!stream_ || finished_) return;
  finished_ = true;
  if (batch_.refers() || batch_.room() == 0) {
    batch_.clear();
    stream_.reset();
    return;
  }
  P2pEnvelope envelope;
  envelope.kind = P2pKind::kEnd;
  envelope.communicator = context_.options.communicator;
  envelope.sequence = sequence_;
  batch_.add(envelope);
}

// A stream that was asked for and has not come is work to do: it must be taken, and told its end.
bool P2pSender::idle() const {
  return !lacks_stream() && batch_.empty() && writing_.empty() && cleared_.empty() && awaiting_.empty() &&
         queue_.empty();
}

}  // namespace rondo
