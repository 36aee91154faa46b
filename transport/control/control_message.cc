#include "transport/control/control_message.h"

#include <algorithm>
#include <bit>

#include "ring/base/bytes.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

// Bits of an answer's byte of flags. A frame with any other bit is malformed.
enum StateFlags : uint8_t { kFinished = 1, kInP2p = 2, kThreads = 4, kAllStateFlags = 7 };

// put() writes the fields in the order of docs/wire.md. It cuts texts and lists at their bounds, so that no body
// exceeds kMaxControlBodyBytes.
void put(ByteWriter& writer, const AbortMessage& message) {
  const size_t ranks = std::min(message.error.ranks.size(), kMaxErrorRanks);
  writer.u64(message.communicator)
      .u64(static_cast<uint64_t>(message.stage))
      .u16(static_cast<uint16_t>(message.error.code));
  writer.u16(static_cast<uint16_t>(ranks));
  for (size_t i = 0; i < ranks; ++i) writer.u32(static_cast<uint32_t>(message.error.ranks[i]));
  writer.short_text(message.error.message, kMaxErrorTextBytes);
}

void put(ByteWriter& writer, const QueryMessage& message) { writer.u64(message.communicator).u64(message.sequence); }

void put(ByteWriter& writer, const AnswerMessage& message) {
  const CallState& state = message.state;
  const int flags = (state.finished ? kFinished : 0) | (state.in_p2p ? kInP2p : 0) | (state.threads ? kThreads : 0);
  writer.u64(message.communicator).u64(message.sequence).u64(state.current).u64(state.fingerprint);
  writer.u64(state.route);
  writer.u8(static_cast<uint8_t>(flags)).u32(static_cast<uint32_t>(state.p2p_peer));
  writer.u64(state.p2p_moved).u64(state.p2p_looks).u64(state.since_ms);
  writer.u32(static_cast<uint32_t>(state.slowest.peer)).u64(state.slowest.bytes_per_second).u64(state.slowest.best);
  writer.short_text(state.text, kMaxCallTextBytes).short_text(state.p2p_text, kMaxCallTextBytes);
}

void put(ByteWriter& writer, const ByeMessage& message) {
  writer.u64(message.communicator).u64(message.last_sequence).u8(message.streams ? 1 : 0);
}

void put(ByteWriter& writer, const ConnectMessage& message) { writer.u64(message.communicator).u16(message.lane); }

void put(ByteWriter&, const LeaveMessage&) {}

void put(ByteWriter& writer, const LostMessage& message) {
  writer.u32(message.rank)
      .u32(message.by)
      .u8(static_cast<uint8_t>(message.fate))
      .short_text(message.why, kMaxErrorTextBytes);
}

void put(ByteWriter&, const AliveMessage&) {}

void put(ByteWriter& writer, const BlameMessage& message) {
  writer.u64(message.communicator).u64(message.sequence).short_text(message.text, kMaxErrorTextBytes);
}

// Writes bits into bytes, from the highest bit of each on.
class BitWriter {
 public:
  explicit BitWriter(ByteWriter& writer) : writer_(writer) {}
  // The lowest `digits` bits of `value`, the highest first.
  void put(size_t value, int digits) {
    while (--digits >= 0) {
      byte_ = byte_ << 1 | (value >> digits & 1);
      if (++filled_ == 8) write();
    }
  }
  // Zeros fill the last byte.
  void finish() {
    if (filled_ > 0) put(0, 8 - filled_);
  }

 private:
  void write() {
    writer_.u8(static_cast<uint8_t>(byte_));
    byte_ = 0;
    filled_ = 0;
  }
  ByteWriter& writer_;
  size_t byte_ = 0;
  int filled_ = 0;  // bits
};

// Reads what BitWriter has written; zeros past the end, which the reader knows.
class BitReader {
 public:
  explicit BitReader(ByteReader& reader) : reader_(reader) {}
  bool next() {
    if (left_ == 0) byte_ = reader_.u8(), left_ = 8;
    return (byte_ >> --left_ & 1) != 0;
  }
  // The rest of the last byte is zero.
  bool finish() {
    while (left_ > 0) {
      if (next()) return false;
    }
    return true;
  }

 private:
  ByteReader& reader_;
  unsigned byte_ = 0;
  int left_ = 0;  // bits
};

// The number of members. If there are any: the first one's bit, then the length of each run of equal bits in Elias's
// gamma code: as many zeros as it has binary digits behind the first, then the digits. Sets have few runs: a leader
// sends them to each member at once.
void put(ByteWriter& writer, const MemberSet& set) {
  writer.u16(static_cast<uint16_t>(set.size()));
  if (set.empty()) return;
  BitWriter bits(writer);
  bits.put(set.front() ? 1 : 0, 1);
  for (auto first = set.begin(); first != set.end();) {
    const auto next = std::find(first, set.end(), !*first);
    const auto length = static_cast<size_t>(next - first);
    const int digits = static_cast<int>(std::bit_width(length));
    bits.put(length, 2 * digits - 1);
    first = next;
  }
  bits.finish();
}

void put(ByteWriter& writer, const MembershipMessage& message) {
  writer.u64(message.communicator).u8(static_cast<uint8_t>(message.kind));
  for (const auto& ballot : {message.ballot, message.accepted}) writer.u32(ballot.round).u32(ballot.leader);
  for (const MemberSet* set : {&message.value.members, &message.lost, &message.dead}) put(writer, *set);
  writer.u8(message.value.grown ? 1 : 0);
}

// get() is false where a value is one that put() never writes. A body that is too short shows in the reader only, which
// decode_as() asks. Ranks of an error are not checked here. Functions that use one as an index check it (rank_name(),
// Departures::start_failed()).
bool get(ByteReader& reader, AbortMessage& message) {
  message.communicator = reader.u64();
  const uint64_t stage = reader.u64();
  message.stage = static_cast<Stage>(stage);
  const uint16_t code = reader.u16();
  message.error.code = static_cast<ErrorCode>(code);
  const size_t ranks = reader.u16();
  if (!reader.ok() || code == 0 || code >= kErrorCodes) return false;
  if (ranks > kMaxErrorRanks || stage > static_cast<uint64_t>(Stage::kUse)) return false;
  for (size_t i = 0; i < ranks; ++i) message.error.ranks.push_back(static_cast<int>(reader.u32()));
  message.error.message = reader.short_text(kMaxErrorTextBytes);
  return true;
}

bool get(ByteReader& reader, QueryMessage& message) {
  message.communicator = reader.u64();
  message.sequence = reader.u64();
  return true;
}

bool get(ByteReader& reader, AnswerMessage& message) {
  message.communicator = reader.u64();
  message.sequence = reader.u64();
  message.state.current = reader.u64();
  message.state.fingerprint = reader.u64();
  message.state.route = reader.u64();
  const uint8_t flags = reader.u8();
  message.state.finished = flags & kFinished;
  message.state.in_p2p = flags & kInP2p;
  message.state.threads = flags & kThreads;
  message.state.p2p_peer = static_cast<int>(reader.u32());
  message.state.p2p_moved = reader.u64();
  message.state.p2p_looks = reader.u64();
  message.state.since_ms = reader.u64();
  message.state.slowest.peer = static_cast<int>(reader.u32());
  message.state.slowest.bytes_per_second = reader.u64();
  message.state.slowest.best = reader.u64();
  message.state.text = reader.short_text(kMaxCallTextBytes);
  message.state.p2p_text = reader.short_text(kMaxCallTextBytes);
  return flags <= kAllStateFlags;
}

bool get(ByteReader& reader, ByeMessage& message) {
  message.communicator = reader.u64();
  message.last_sequence = reader.u64();
  const uint8_t streams = reader.u8();
  message.streams = streams != 0;
  return streams <= 1;
}

bool get(ByteReader& reader, ConnectMessage& message) {
  message.communicator = reader.u64();
  message.lane = reader.u16();
  return true;
}

bool get(ByteReader&, LeaveMessage&) { return true; }

bool get(ByteReader& reader, LostMessage& message) {
  message.rank = reader.u32();
  message.by = reader.u32();
  const uint8_t fate = reader.u8();
  message.fate = static_cast<LostMessage::Fate>(fate);
  message.why = reader.short_text(kMaxErrorTextBytes);
  return fate <= static_cast<uint8_t>(LostMessage::Fate::kUnreached);
}

bool get(ByteReader&, AliveMessage&) { return true; }

bool get(ByteReader& reader, BlameMessage& message) {
  message.communicator = reader.u64();
  message.sequence = reader.u64();
  message.text = reader.short_text(kMaxErrorTextBytes);
  return true;
}

// Runs end exactly with the last member.
bool get(ByteReader& reader, MemberSet& set) {
  constexpr int kMostZeros = 15;  // of a length of 16 bits
  const size_t size = reader.u16();
  if (size == 0) return true;
  BitReader bits(reader);
  for (bool value = bits.next(); set.size() < size; value = !value) {
    int zeros = 0;
    while (!bits.next()) {
      if (++zeros > kMostZeros) return false;
    }
    size_t length = 1;
    for (; zeros > 0; --zeros) length = 2 * length + (bits.next() ? 1 : 0);
    if (!reader.ok() || length > size - set.size()) return false;
    set.insert(set.end(), length, value);
  }
  return bits.finish();
}

bool get(ByteReader& reader, MembershipMessage& message) {
  message.communicator = reader.u64();
  const uint8_t kind = reader.u8();
  message.kind = static_cast<MembershipMessage::Kind>(kind);
  for (auto* ballot : {&message.ballot, &message.accepted}) {
    ballot->round = reader.u32();
    ballot->leader = reader.u32();
  }
  if (!get(reader, message.value.members) || !get(reader, message.lost) || !get(reader, message.dead)) return false;
  const uint8_t grown = reader.u8();
  message.value.grown = grown == 1;
  return kind <= static_cast<uint8_t>(MembershipMessage::Kind::kAbsent) && grown <= 1;
}

// nullopt where the body is short, has a value that no rank writes, or goes on behind its last field.
template <typename Message>
std::optional<ControlBody> decode_as(std::string_view bytes) {
  ByteReader reader(bytes);
  Message message;
  if (!get(reader, message) || !reader.done()) return std::nullopt;
  return message;
}

}  // namespace

std::string encode(const ControlFrame& frame) {
  ByteWriter body;
  std::visit([&](const auto& message) { put(body, message); }, frame.body);
  const std::string bytes = body.take();
  RONDO_CHECK(bytes.size() <= kMaxControlBodyBytes, "every field of a control message is cut to its bound");
  ByteWriter writer;
  writer.u32(static_cast<uint32_t>(bytes.size())).u16(static_cast<uint16_t>(frame.body.index() + 1));
  writer.u16(frame.hops);
  writer.u32(frame.source).u32(frame.destination).raw(bytes);
  return writer.take();
}

std::optional<ControlHeader> decode_control_header(std::string_view bytes) {
  ByteReader reader(bytes);
  ControlHeader header;
  header.body_bytes = reader.u32();
  header.type = reader.u16();
  header.hops = reader.u16();
  header.source = reader.u32();
  header.destination = reader.u32();
  const bool known = header.type >= 1 && header.type <= std::variant_size_v<ControlBody>;
  if (!reader.done() || !known || header.body_bytes > kMaxControlBodyBytes) return std::nullopt;
  return header;
}

// The numbers are those of docs/wire.md, and the places in ControlBody plus one.
std::optional<ControlBody> decode_control_body(uint16_t type, std::string_view bytes) {
  switch (type) {
    case 1:
      return decode_as<AbortMessage>(bytes);
    case 2:
      return decode_as<QueryMessage>(bytes);
    case 3:
      return decode_as<AnswerMessage>(bytes);
    case 4:
      return decode_as<ByeMessage>(bytes);
    case 5:
      return decode_as<ConnectMessage>(bytes);
    case 6:
      return decode_as<LeaveMessage>(bytes);
    case 7:
      return decode_as<LostMessage>(bytes);
    case 8:
      return decode_as<AliveMessage>(bytes);
    case 9:
      return decode_as<BlameMessage>(bytes);
    case 10:
      return decode_as<MembershipMessage>(bytes);
    default:
      return std::nullopt;
  }
}

}  // namespace rondo
