#include "transport/control/control_message.h"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

#include "ring/base/check.h"
#include "ring/base/fields.h"

namespace rondo {
namespace {

// Writes bits into bytes, from the highest bit of each on.
class BitWriter {
 public:
  explicit BitWriter(Fields& bytes) : bytes_(bytes) {}
  // The lowest `digits` bits of `value`, the highest first.
  void put(size_t value, int digits) {
    while (--digits >= 0) {
      byte_ = static_cast<uint8_t>(byte_ << 1 | (value >> digits & 1));
      if (++filled_ == 8) write();
    }
  }
  // Zeros fill the last byte.
  void finish() {
    if (filled_ > 0) put(0, 8 - filled_);
  }

 private:
  void write() {
    bytes_(byte_);
    byte_ = 0;
    filled_ = 0;
  }
  Fields& bytes_;
  uint8_t byte_ = 0;
  int filled_ = 0;  // bits
};

// Reads what BitWriter has written; zeros past the end, which `bytes` knows.
class BitReader {
 public:
  explicit BitReader(Fields& bytes) : bytes_(bytes) {}
  bool next() {
    if (left_ == 0) bytes_(byte_), left_ = 8;
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
  Fields& bytes_;
  uint8_t byte_ = 0;
  int left_ = 0;  // bits
};

// The first member's bit, then the length of each run of equal bits in Elias's gamma code: as many zeros as it has
// binary digits behind the first, then the digits. Sets have few runs: a leader sends them to each member at once.
void write_runs(Fields& bytes, const MemberSet& set) {
  BitWriter bits(bytes);
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

// Runs end exactly with the last member. False: they do not.
bool read_runs(Fields& bytes, MemberSet& set, size_t size) {
  constexpr int kMostZeros = 15;  // of a length of 16 bits
  BitReader bits(bytes);
  for (bool value = bits.next(); set.size() < size; value = !value) {
    int zeros = 0;
    while (!bits.next()) {
      if (++zeros > kMostZeros) return false;
    }
    size_t length = 1;
    for (; zeros > 0; --zeros) length = 2 * length + (bits.next() ? 1 : 0);
    if (!bytes.ok() || length > size - set.size()) return false;
    set.insert(set.end(), length, value);
  }
  return bits.finish();
}

void set_fields(Fields& bytes, MemberSet& set) {
  auto size = static_cast<uint16_t>(set.size());
  bytes(size);
  if (size == 0) return;
  if (bytes.reads()) return bytes.require(read_runs(bytes, set, size));
  write_runs(bytes, set);
}

}  // namespace

// The fields of each message are in the order of docs/wire.md. Ranks of an error are not checked here: who uses one as
// an index does (rank_name(), Departures::start_failed()).
static void fields(Fields& bytes, AbortMessage& message) {
  bytes(message.communicator)
      .within<uint64_t>(message.stage, Stage::kMaking, Stage::kUse)
      .within<uint16_t>(message.error.code, static_cast<ErrorCode>(1), static_cast<ErrorCode>(kErrorCodes - 1))
      .list(message.error.ranks, kMaxErrorRanks, [&bytes](int& rank) { bytes(rank); })
      .text(message.error.message, kMaxErrorTextBytes);
}

static void fields(Fields& bytes, QueryMessage& message) { bytes(message.communicator, message.sequence); }

static void fields(Fields& bytes, LinkRate& link) { bytes(link.peer, link.bytes_per_second, link.best); }

static void fields(Fields& bytes, AnswerMessage& message) {
  CallState& state = message.state;
  bytes(message.communicator, message.sequence, state.current, state.fingerprint, state.route)
      .bits(state.finished, state.in_p2p, state.threads)(state.p2p_peer, state.p2p_moved, state.p2p_looks,
                                                         state.since_ms, state.slowest)
      .text(state.text, kMaxCallTextBytes)
      .text(state.p2p_text, kMaxCallTextBytes);
}

static void fields(Fields& bytes, ByeMessage& message) {
  bytes(message.communicator, message.last_sequence, message.streams);
}

static void fields(Fields& bytes, ConnectMessage& message) { bytes(message.communicator); }

static void fields(Fields&, LeaveMessage&) {}

static void fields(Fields& bytes, LostMessage& message) {
  using Fate = LostMessage::Fate;
  bytes(message.rank, message.by)
      .within<uint8_t>(message.fate, Fate::kDied, Fate::kUnreached)
      .text(message.why, kMaxErrorTextBytes);
}

static void fields(Fields&, AliveMessage&) {}

static void fields(Fields& bytes, BlameMessage& message) {
  bytes(message.communicator, message.sequence).text(message.text, kMaxErrorTextBytes);
}

static void fields(Fields& bytes, MembershipMessage::Ballot& ballot) { bytes(ballot.round, ballot.leader); }

static void fields(Fields& bytes, MembershipMessage& message) {
  using Kind = MembershipMessage::Kind;
  bytes(message.communicator)
      .within<uint8_t>(message.kind, Kind::kJoin, Kind::kAbsent)(message.ballot, message.accepted);
  for (MemberSet* set : {&message.value.members, &message.lost, &message.dead}) set_fields(bytes, *set);
  bytes(message.value.grown);
}

static void fields(Fields& bytes, ControlHeader& header) {
  bytes(header.body_bytes, header.type, header.hops, header.source, header.destination);
}

std::string encode(const ControlFrame& frame) {
  const std::string body = std::visit([](const auto& message) { return encoded(message); }, frame.body);
  RONDO_CHECK(body.size() <= kMaxControlBodyBytes, "every field of a control message is cut to its bound");
  return encoded(ControlHeader{static_cast<uint32_t>(body.size()), static_cast<uint16_t>(frame.body.index() + 1),
                               frame.source, frame.destination, frame.hops}) +
         body;
}

std::optional<ControlHeader> decode_control_header(std::string_view bytes) {
  const std::optional<ControlHeader> header = decoded<ControlHeader>(bytes);
  const bool known = header && header->type >= 1 && header->type <= std::variant_size_v<ControlBody>;
  return known && header->body_bytes <= kMaxControlBodyBytes ? header : std::nullopt;
}

// The numbers are those of docs/wire.md, and the places in ControlBody plus one.
std::optional<ControlBody> decode_control_body(uint16_t type, std::string_view bytes) {
  std::optional<ControlBody> body;
  const auto try_each = [&]<size_t... Place>(std::index_sequence<Place...>) {
    const auto try_one = [&]<typename Message>(std::type_identity<Message>) {
      if (auto message = decoded<Message>(bytes)) body = std::move(*message);
    };
    ((type == Place + 1 ? try_one(std::type_identity<std::variant_alternative_t<Place, ControlBody>>()) : void()), ...);
  };
  try_each(std::make_index_sequence<std::variant_size_v<ControlBody>>());
  return body;
}

}  // namespace rondo
