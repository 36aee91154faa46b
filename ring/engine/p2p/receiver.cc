#include "ring/engine/p2p/receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/crc32c.h"
#include "ring/base/caught.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

// One read takes so much of short messages: 900 of 8 bytes. The buffer stays in a core's cache.
constexpr size_t kBufferBytes = 64 * 1024;
// The first mismatch ends the communicator, so answers to further ones need no queue.
constexpr size_t kMaxRefusals = 16;
// Bytes copied at once of a payload that the stream lends: the sender may fill again what was taken while more
// is copied. A piece of a stream through shared memory is taken at once.
constexpr uint64_t kCopiedAtOnce = 16 * 1024 + kP2pEnvelopeBytes;
// Reads of one stream in a pass: a peer that is as fast as this rank delays the others by some MiB at most.
constexpr int kReadsATurn = 16;
// Bytes read at once from a peer's memory: 100 us, in which this rank does nothing else.
constexpr uint64_t kReadAtOnce = 1 << 20;

// Credit goes back when half of what the peer could have at most is owed. That is seldom while messages are
// taken as they come, and at once when the peer has next to none left. So the peer is never without credit
// while some is owed.
bool due(uint64_t owed, uint64_t held, uint64_t limit) { return owed > 0 && 2 * owed >= limit - (held - owed); }

}  // namespace

P2pReceiver::P2pReceiver(P2pContext& context, int peer) : context_(context), peer_(peer) {}
P2pReceiver::~P2pReceiver() = default;

void P2pReceiver::open(std::unique_ptr<ByteStream> stream) {
  buffer_ = std::make_unique<std::byte[]>(kBufferBytes);
  batch_.prepare(context_.checked(peer_));
  refusals_.reserve(kMaxRefusals);
  opened_ = true;
  stream_ = std::move(stream);
}

bool P2pReceiver::awaited() const {
  if (!stream_) return false;
  return context_.matcher.named(peer_) || context_.matcher.any_source() || !clearing_.empty() || !filling_.empty() ||
         payload_left_ > 0;
}

bool P2pReceiver::pull(bool until_empty) {
  bool moved = false;
  for (int i = 0; i < kReadsATurn && stream_; ++i) {
    if (!read_some(until_empty, &moved)) break;
  }
  return moved;
}

// The peer may still write to the memory that the stream lends, so the envelope is copied before it is checked.
// Anything but a whole eager message that fits, without checksums, takes the long way.
P2pAtOnce P2pReceiver::take_now(const P2pCall& receive, Message& came) {
  if (!lends_ || !stream_ || draining_ || ended_ || payload_left_ > 0 || tail_ > 0) return P2pAtOnce::kNot;
  const std::span<const std::byte> there = stream_->view();
  if (there.empty()) return P2pAtOnce::kNothingYet;
  P2pEnvelope envelope;
  if (context_.checked(peer_) || there.size() < kP2pEnvelopeBytes ||
      p2p_decode(there.data(), context_.options.communicator, &envelope) != nullptr) {
    return P2pAtOnce::kNot;
  }
  const bool whole = envelope.kind == P2pKind::kEager && envelope.bytes <= there.size() - kP2pEnvelopeBytes;
  if (!whole || !P2pMatcher::takes(receive.tag, envelope.tag) || !P2pContext::fits(envelope, receive) ||
      count(envelope) != nullptr) {
    return P2pAtOnce::kNot;
  }
  came = {peer_, static_cast<int>(envelope.tag), envelope.bytes};
  if (envelope.bytes > 0) std::memcpy(receive.data, there.data() + kP2pEnvelopeBytes, envelope.bytes);
  stream_->consume(kP2pEnvelopeBytes + envelope.bytes);
  context_.moved_bytes += kP2pEnvelopeBytes + envelope.bytes;
  owe(envelope);
  push();
  return P2pAtOnce::kOver;
}

// One read of the stream. False: there is no more now.
bool P2pReceiver::read_some(bool until_empty, bool* moved) {
  if (!draining_ && tail_ == 0 && take_in_place()) return *moved = true;
  if (!stream_) return *moved = true, false;
  iovec parts[2];
  int count = 0;
  const uint64_t direct = into_ == Into::kDiscard ? 0 : payload_left_;
  if (direct > 0) parts[count++] = {landing_at_, direct};
  // While a long payload is under way, and where the stream lends, no more than the next envelope is read ahead: what
  // follows it then lands in place instead of being copied.
  const bool in_place = !draining_ && (lends_ || (!filling_.empty() && into_ != Into::kDiscard));
  const size_t limit = in_place ? kP2pEnvelopeBytes : kBufferBytes;
  parts[count++] = {buffer_.get() + tail_, limit - tail_};
  const uint64_t asked = direct + parts[count - 1].iov_len;

  const long got = stream_->read(parts, count);
  if (got < 0) {
    link_error_ = stream_->error();
    close();
    return false;
  }
  if (got == 0) return false;
  *moved = true;
  context_.moved_bytes += static_cast<uint64_t>(got);
  if (draining_) return true;
  const uint64_t landed = std::min(direct, static_cast<uint64_t>(got));
  tail_ += static_cast<size_t>(got) - landed;
  if (landed > 0) take_payload(landed);
  parse();
  return until_empty || static_cast<uint64_t>(got) == asked;
}

// Parses what the stream lends, without a copy in between. False: there is nothing, or less than an envelope,
// whose rest lies at the other end of the ring.
bool P2pReceiver::take_in_place() {
  const std::span<const std::byte> there = stream_->view();
  lends_ |= !there.empty();
  size_t taken = 0;
  while (stream_ && taken < there.size()) {
    const size_t bytes = parse_some(there.subspan(taken));
    if (bytes == 0) break;
    taken += bytes;
  }
  context_.moved_bytes += taken;
  if (taken > 0 && stream_) stream_->consume(taken);
  return taken > 0;
}

// Parses an envelope, or takes some payload. Returns the bytes taken. 0: there is less than an envelope, or the
// peer has broken the protocol; then the stream is gone.
size_t P2pReceiver::parse_some(std::span<const std::byte> there) {
  if (payload_left_ > 0) {
    const size_t bytes = std::min<uint64_t>({payload_left_, there.size(), kCopiedAtOnce});
    if (into_ != Into::kDiscard) std::memcpy(landing_at_, there.data(), bytes);
    take_payload(bytes);
    return bytes;
  }
  if (there.size() < kP2pEnvelopeBytes) return 0;
  P2pEnvelope envelope;
  const bool checked = context_.checked(peer_);
  if (checked && !p2p_intact(there.data())) {
    protocol_error("an envelope that arrived damaged", ErrorCode::kCorrupt);
    return 0;
  }
  const char* wrong = p2p_decode(there.data(), context_.options.communicator, &envelope, checked);
  if (!wrong) wrong = take(envelope);
  if (!wrong) return kP2pEnvelopeBytes;
  protocol_error(wrong);
  return 0;
}

// Parses what was read ahead, and moves an incomplete envelope to the front of the buffer.
void P2pReceiver::parse() {
  while (stream_ && head_ < tail_) {
    const size_t bytes = parse_some({buffer_.get() + head_, tail_ - head_});
    if (!stream_) return;
    if (bytes == 0) break;
    head_ += bytes;
  }
  tail_ -= head_;
  std::memmove(buffer_.get(), buffer_.get() + head_, tail_);
  head_ = 0;
}

// The next bytes of the payload lie where they belong. The checksum goes on over them.
void P2pReceiver::take_payload(size_t bytes) {
  if (envelope_.checked && into_ != Into::kDiscard) payload_sum_ = crc32c(landing_at_, bytes, payload_sum_);
  payload_left_ -= bytes;
  landing_at_ += into_ == Into::kDiscard ? 0 : bytes;
  if (payload_left_ == 0) payload_done();
}

// A frame of the sender's. After kEnd nothing may follow, but the stream stays open for answers.
const char* P2pReceiver::take(const P2pEnvelope& envelope) {
  if (ended_) return "a frame after its end";
  switch (envelope.kind) {
    case P2pKind::kEager:
      return take_eager(envelope);
    case P2pKind::kRequest:
      return take_request(envelope);
    case P2pKind::kData:
      return take_data(envelope);
    case P2pKind::kEnd:
      ended_ = true;
      over_ = true;
      return nullptr;
    default:
      return "a frame that only receivers send";
  }
}

// Checks a message's place in the order and its cost against the peer's credit, and counts both. Nothing has
// happened if it is wrong.
const char* P2pReceiver::count(const P2pEnvelope& envelope) {
  if (envelope.sequence != sequence_) return "a message out of order";
  if (held_slots_ == context_.slots) return "more messages than it has credit for";
  if (envelope.kind == P2pKind::kEager) {
    if (envelope.bytes > context_.options.eager_bytes) return "an eager message above the limit";
    if (p2p_charge(envelope.bytes) > context_.options.pool_bytes - held_bytes_)
      return "more bytes than it has credit for";
    held_bytes_ += p2p_charge(envelope.bytes);
  }
  ++held_slots_;
  ++sequence_;
  return nullptr;
}

// The payload goes into the receive's buffer if there is one, into the pool if there is none or if the message
// is too long for it, and nowhere if the two do not fit each other.
const char* P2pReceiver::take_eager(const P2pEnvelope& envelope) {
  if (const char* wrong = count(envelope)) return wrong;
  envelope_ = envelope;
  payload_left_ = envelope.bytes;
  receive_ = context_.receive_for(envelope, peer_);
  if (receive_ && !P2pContext::takes(envelope, *receive_)) {
    refuse(envelope, *std::exchange(receive_, nullptr));
    into_ = Into::kDiscard;
  } else {
    if (receive_) {  // first: what follows may throw
      start_receive(*receive_, envelope);
      into_ = Into::kReceive;
      landing_at_ = receive_->data;
    }
    if (!receive_ || !P2pContext::fits(envelope, *receive_)) {
      message_ = context_.pool.take(envelope, peer_);
      message_->arriving = true;
      into_ = Into::kMessage;
      landing_at_ = message_->data;
      if (!receive_) context_.keep(*message_);
    }
  }
  if (payload_left_ == 0) payload_done();
  return nullptr;
}

// The request costs no credit but its slot, and lies in the pool without memory of its own.
const char* P2pReceiver::take_request(const P2pEnvelope& envelope) {
  if (const char* wrong = count(envelope)) return wrong;
  P2pMessage* message = context_.pool.take(envelope, peer_);
  if (P2pRequest* receive = context_.receive_for(envelope, peer_)) {
    accept(*message, *receive);
  } else {
    context_.keep(*message);
  }
  return nullptr;
}

// A piece of a payload that was asked for. A peer can name any message, offset and length, so all are compared
// with what this rank has cleared.
const char* P2pReceiver::take_data(const P2pEnvelope& envelope) {
  P2pRequest* receive = filling_.front();
  while (receive && receive->sequence != envelope.sequence) receive = receive->next;
  if (!receive) return "the payload of a message that was not cleared";
  if (envelope.offset != receive->moved) return "a payload out of order";
  const bool read = receive->address != 0;
  if ((envelope.bytes == 0) != read || envelope.bytes > receive->wanted() - receive->moved) {
    return "a payload of a wrong length";
  }
  if (read) {
    filling_.remove(*receive);
    context_.received(*receive);
    return nullptr;
  }
  envelope_ = envelope;
  payload_left_ = envelope.bytes;
  receive_ = receive;
  into_ = Into::kReceive;
  landing_at_ = receive->data + receive->moved;
  return nullptr;
}

// A payload is complete: the receive ends, or the message waits in the pool. Credit is owed back as soon as the
// message is in a receive's buffer; in the pool it stays charged.
void P2pReceiver::payload_done() {
  const uint32_t found = std::exchange(payload_sum_, 0);
  if (envelope_.checked && into_ != Into::kDiscard && found != envelope_.checksum) {
    return protocol_error("a payload that arrived damaged", ErrorCode::kCorrupt);
  }
  if (envelope_.kind == P2pKind::kData) {
    receive_->moved += envelope_.bytes;
    if (receive_->moved == receive_->wanted()) {
      filling_.remove(*receive_);
      context_.received(*receive_);
    }
  } else if (into_ == Into::kMessage) {
    message_->arriving = false;  // owed when it is taken
    if (receive_) take_beginning(*message_, *receive_);
  } else {
    owe(envelope_);
    if (into_ == Into::kReceive) context_.done(*receive_);
  }
  into_ = Into::kNothing;
  receive_ = nullptr;
  message_ = nullptr;
}

// The message lies whole in the pool; its receive takes as much as fits, and ends with kTruncated.
void P2pReceiver::take_beginning(P2pMessage& message, P2pRequest& receive) noexcept {
  if (receive.wanted() > 0) std::memcpy(receive.data, message.data, receive.wanted());
  owe(message.envelope);
  context_.pool.give(&message);
  context_.received(receive);
}

// The receive is this message's from here on. The address is kept only if this rank may read it: else the payload is
// asked for.
void P2pReceiver::start_receive(P2pRequest& receive, const P2pEnvelope& envelope) {
  receive.message = {peer_, static_cast<int>(envelope.tag), envelope.bytes};
  receive.sequence = envelope.sequence;
  receive.moved = 0;
  receive.address = envelope.kind == P2pKind::kRequest && context_.readable(peer_) ? envelope.offset : 0;
}

// A receive has met a message that came before it. The message may be an eager one that is there, one whose
// payload is still arriving (then what has come is copied, and the rest goes into the receive's buffer), or a
// request, which is asked for.
void P2pReceiver::accept(P2pMessage& message, P2pRequest& receive) noexcept {
  const P2pEnvelope envelope = message.envelope;
  const bool fits = P2pContext::fits(envelope, receive), takes = P2pContext::takes(envelope, receive);
  const bool arriving = message.arriving;
  if (takes) {
    start_receive(receive, envelope);
  } else {
    refuse(envelope, receive);
  }
  if (arriving && message_ != &message) {  // the stream ended in it
    context_.pool.give(&message);
    if (takes) clear_later(receive);
    return;
  }
  if (takes && !fits && envelope.kind == P2pKind::kEager) {
    if (!arriving) return take_beginning(message, receive);
    receive_ = &receive;
    return;
  }
  if (fits && message.data) {
    std::memcpy(receive.data, message.data, envelope.bytes - (arriving ? payload_left_ : 0));
  }
  context_.pool.give(&message);
  if (arriving) {  // the rest of it follows
    message_ = nullptr;
    into_ = fits ? Into::kReceive : Into::kDiscard;
    receive_ = fits ? &receive : nullptr;
    landing_at_ = fits ? receive.data + (envelope.bytes - payload_left_) : nullptr;
    return;
  }
  owe(envelope);
  if (!takes) return;
  if (envelope.kind == P2pKind::kEager) return context_.done(receive);
  clear_later(receive);
}

// The receive waits until the peer is asked for the payload. If the stream is over, the receive stays pending:
// the fabric may still find the true reason.
void P2pReceiver::clear_later(P2pRequest& receive) noexcept {
  if (!end_error_.ok()) return context_.fail(receive, end_error_);
  clearing_.push_back(receive);
  if (!stream_) report();
}

// The two ranks differ in dtype or length: both get the same error. The refusal tells the sender, whose send
// may be over.
void P2pReceiver::refuse(const P2pEnvelope& envelope, P2pRequest& receive) noexcept {
  const Error error = context_.mismatch(peer_, envelope, receive);
  if (refusals_.size() < kMaxRefusals) {
    P2pEnvelope refusal = envelope;
    refusal.kind = P2pKind::kRefuse;
    refusal.receive_dtype = receive.dtype;
    refusal.offset = std::min(receive.bytes, kP2pMaxBytes);
    refusals_.push_back(refusal);
  }
  context_.fail(receive, error);
  context_.set_failure(error);
}

// The message holds no memory of the pool any more, or never has: its cost can go back to the peer.
void P2pReceiver::owe(const P2pEnvelope& envelope) {
  ++owed_slots_;
  if (envelope.kind == P2pKind::kEager) owed_bytes_ += p2p_charge(envelope.bytes);
}

bool P2pReceiver::credit_due() const {
  return due(owed_bytes_, held_bytes_, context_.options.pool_bytes) || due(owed_slots_, held_slots_, context_.slots);
}

// Reads a piece of the first message in turn, if the peer lets this rank read it. A payload that cannot be read
// is asked for instead.
bool P2pReceiver::read_peer() {
  P2pRequest* receive = clearing_.front();
  if (receive == nullptr || receive->address == 0 || receive->moved == receive->wanted()) return false;
  const uint64_t bytes = std::min(kReadAtOnce, receive->wanted() - receive->moved);
  if (!context_.options.read(peer_, receive->address + receive->moved, receive->data + receive->moved, bytes)) {
    receive->address = receive->moved = 0;
    return true;
  }
  receive->moved += bytes;
  context_.moved_bytes += bytes;
  return true;
}

bool P2pReceiver::push_some() {
  bool moved = stream_ && !write_over_ && !draining_ && read_peer();
  while (stream_ && !write_over_) {
    if (batch_.empty() && !draining_) compose();
    if (batch_.empty()) break;
    const long written = batch_.write(*stream_);
    // The peer's end of it shows when reading, after what it had still sent.
    if (written < 0) write_over_ = true;
    if (written <= 0) break;
    moved = true;
    context_.moved_bytes += static_cast<uint64_t>(written);
  }
  return moved;
}

// Fills the batch: refusals, then clearances in the order of their messages, then credit, which costs little
// when it comes late.
void P2pReceiver::compose() {
  P2pEnvelope envelope;
  envelope.communicator = context_.options.communicator;
  while (batch_.room() > 0 && !refusals_.empty()) {
    batch_.add(refusals_.back());
    refusals_.pop_back();
  }
  while (batch_.room() > 0 && !clearing_.empty()) {
    P2pRequest& receive = *clearing_.front();
    if (receive.address != 0 && receive.moved < receive.wanted()) break;  // it is being read
    clearing_.pop_front();
    envelope.kind = P2pKind::kClear;
    envelope.sequence = receive.sequence;
    envelope.bytes = receive.wanted();
    envelope.offset = receive.moved;
    batch_.add(envelope);
    if (envelope.bytes > 0) {
      filling_.push_back(receive);
    } else {
      context_.received(receive);
    }
  }
  if (batch_.room() == 0 || !credit_due()) return;
  envelope = {};
  envelope.communicator = context_.options.communicator;
  envelope.kind = P2pKind::kCredit;
  envelope.bytes = owed_bytes_;
  envelope.slots = static_cast<uint32_t>(owed_slots_);
  batch_.add(envelope);
  held_bytes_ -= owed_bytes_;
  held_slots_ -= owed_slots_;
  owed_bytes_ = owed_slots_ = 0;
}

void P2pReceiver::protocol_error(const char* wrong, ErrorCode code) {
  context_.set_failure({code,
                        fmt::format("{} sent {} to {} on a point-to-point stream", context_.name(peer_), wrong,
                                    context_.name(context_.rank)),
                        {peer_}});
  reported_ = true;
  close();
}

// The stream is over. Receives that were being filled stay pending: the fabric finds the reason.
void P2pReceiver::close() noexcept {
  const bool broken = payload_left_ > 0 || head_ < tail_ || !filling_.empty() || !clearing_.empty();
  stream_.reset();
  batch_.clear();
  over_ = true;
  head_ = tail_ = 0;
  forget_message();
  if (broken) report();
}

// Drops the message that was arriving: its rest will not come. If a matched probe has taken it, it stays for
// the receive that names it, which fails.
void P2pReceiver::forget_message() noexcept {
  if (!message_) return;
  P2pMessage& message = *std::exchange(message_, nullptr);
  into_ = receive_ ? Into::kReceive : Into::kNothing;
  if (!receive_ && message.claim != 0) return;
  if (!receive_) context_.matcher.remove(message);
  context_.pool.give(&message);
}

// Once a stream. The fabric then looks for the reason, and ends what is pending.
void P2pReceiver::report() noexcept {
  if (reported_) return;
  reported_ = true;
  context_.link_failed(peer_, link_error_);
}

void P2pReceiver::stop_answering() {
  batch_.clear();
  write_over_ = true;
}

void P2pReceiver::report_if_named() {
  if (over_ && !stream_ && context_.matcher.named(peer_)) report();
}

void P2pReceiver::end(const Error& error) noexcept {
  reported_ = true;
  close();
  fail_all(error);
}

// The order matters: forget_message() leaves a receive that takes the message's beginning to fail_all().
void P2pReceiver::drain(const Error& error) noexcept {
  draining_ = reported_ = true;
  forget_message();
  fail_all(error);
}

// A payload in the middle of its way is forgotten, so that nothing is written to the receive's buffer after its
// end.
void P2pReceiver::fail_all(const Error& error) noexcept {
  if (end_error_.ok()) keep_error(error, end_error_);
  if (into_ == Into::kReceive && envelope_.kind != P2pKind::kData) context_.fail(*receive_, error);
  into_ = Into::kNothing;
  receive_ = nullptr;
  payload_left_ = 0;
  head_ = tail_ = 0;
  refusals_.clear();
  for (NodeList<P2pRequest>* list : {&clearing_, &filling_}) {
    while (P2pRequest* receive = list->pop_front()) context_.fail(*receive, error);
  }
}

// Credit that is due counts as something to write: without it the peer may wait for ever.
bool P2pReceiver::idle() const {
  return (write_over_ || (batch_.empty() && refusals_.empty())) && clearing_.empty() && filling_.empty() &&
         receive_ == nullptr && !(stream_ && !write_over_ && !draining_ && credit_due());
}

}  // namespace rondo
