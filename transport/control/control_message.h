#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rondo/error.h"
#include "transport/control/membership.h"
#include "transport/fabric.h"

namespace rondo {

// What travels on control connections. Ranks are world ranks. docs/wire.md has the byte tables.

// The communicator is over, on every member. Communicator 0: the sender's start failed. A member passes the first one
// that it gets on to its neighbors, and ignores the others (CommunicatorLife::receive()).
struct AbortMessage {
  uint64_t communicator = 0;
  Stage stage = Stage::kMaking;  // of the rank whose error it is
  Error error;
};
// "What do you do, or did you do, at this sequence?" Sequence 0 is kMessagesSequence.
struct QueryMessage {
  uint64_t communicator = 0;
  uint64_t sequence = 0;
};
// The answer to a QueryMessage, with its communicator and sequence. A failed communicator is answered by an
// AbortMessage instead (ControlLogic::query()).
struct AnswerMessage {
  uint64_t communicator = 0;
  uint64_t sequence = 0;
  CallState state;
};
// The sender has closed its side of the communicator, after its call `last_sequence`. Beyond kMaxFullMesh ranks a
// second one follows once the sender has heard all others' (CommunicatorLife::look_for_last()).
struct ByeMessage {
  uint64_t communicator = 0;
  uint64_t last_sequence = 0;
  bool streams = false;  // the sender has opened a stream to the receiver: what it sent there may come later than this
};
// "Dial me: I want the link", from the lower rank to the higher.
struct ConnectMessage {
  uint64_t communicator = 0;
};
// The whole process leaves in good order; nothing follows.
struct LeaveMessage {};
// The control connection of `rank` and `by` is no more (worlds beyond 64: told to everybody, who finds out whether the
// rank can still be reached; and to a rank that is given up). by == rank: that rank is no more, or has left.
// kUnreached: a question, StartLogic::unreached().
struct LostMessage {
  // kDied: the connection ended without a LEAVE. kLeft: only with by == rank. kUnresponsive: `by` has given the rank up
  // after the suspicion. kUnreached: see above. The values are on the wire.
  enum class Fate : uint8_t { kDied = 0, kLeft = 1, kUnresponsive = 2, kUnreached = 3 };
  uint32_t rank = 0;
  uint32_t by = 0;
  Fate fate = Fate::kDied;
  std::string why;
};
// "I am there", from neighbor to neighbor, every heartbeat.
struct AliveMessage {};
// Whom the call of that sequence waits for (blame.h), from one rank to the others.
struct BlameMessage {
  uint64_t communicator = 0;
  uint64_t sequence = 0;
  std::string text;
};

// The order is that of the types on the wire, from 1 on: decode_control_body() and docs/wire.md have the same.
using ControlBody = std::variant<AbortMessage, QueryMessage, AnswerMessage, ByeMessage, ConnectMessage, LeaveMessage,
                                 LostMessage, AliveMessage, BlameMessage, MembershipMessage>;

struct ControlFrame {
  uint32_t source = 0;
  uint32_t destination = 0;
  ControlBody body;
  uint16_t hops = 0;  // ranks that have passed it on
};

// Bounds of a frame, in bytes. The largest body is a MEMBERSHIP of 65,535 members: each of its three sets takes at most
// 1.5 bits a member, in runs of two (36,896 bytes in all). ABORT with all ranks and a full text has 5142.
inline constexpr size_t kControlHeaderBytes = 16;
inline constexpr size_t kMaxControlBodyBytes = 36'928;
inline constexpr size_t kMaxErrorTextBytes = 4096;  // longer ones are cut when encoded
inline constexpr size_t kMaxCallTextBytes = 2048;
// An error that names more ranks is cut when encoded.
inline constexpr size_t kMaxErrorRanks = 256;

// A decoded header. The peer chose all of it: the length and the type have been checked, the ranks have not
// (ControlMesh::on_frame() compares them with the world).
struct ControlHeader {
  uint32_t body_bytes = 0;
  uint16_t type = 0;  // index in ControlBody, plus one
  uint32_t source = 0;
  uint32_t destination = 0;
  uint16_t hops = 0;
};

// Header and body, ready to be sent.
std::string encode(const ControlFrame& frame);
// nullopt: malformed, or a length beyond the bound; the connection cannot be trusted any further. bytes: exactly those
// of the header or of the body. Ranks, communicators and sequences inside a body may be any numbers.
std::optional<ControlHeader> decode_control_header(std::string_view bytes);
std::optional<ControlBody> decode_control_body(uint16_t type, std::string_view bytes);

}  // namespace rondo
