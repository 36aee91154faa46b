#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/auth/crypto.h"

namespace rondo {

// The first 256 bytes of every connection, in both directions: the dialer's Hello, then the acceptor's Answer.
// handshake.h says what they prove. docs/wire.md has the byte tables; all numbers are little-endian.

inline constexpr uint16_t kWireVersion = 18;
// Sizes on the wire, in bytes. Magic and version keep their places in every version.
inline constexpr size_t kHelloBytes = 256;
inline constexpr size_t kAnswerBytes = 256;
// Where their proofs are.
inline constexpr size_t kHelloMacOffset = 160;
inline constexpr size_t kAnswerMacOffset = 48;
inline constexpr size_t kMaxHelloJobIdBytes = 63;
inline constexpr size_t kMaxAnswerTextBytes = 172;

// Begins both. A line feed, an end-of-file and a byte above 127 show at once when something rewrote the bytes.
inline constexpr std::string_view kWireMagic = "RONDO\n\x1a\xff";

// What a connection is for. Values are on the wire.
enum class Role : uint8_t {
  kControl = 1,  // the control plane: one for each pair of ranks
  kData = 2,     // one connection of a link of slices
  kStream = 3,   // point to point, from the dialer to the acceptor
  kStore = 4,    // a client of the store (store_wire.h); it need not know its rank yet, and says 0
};

// The dialer's claims. The proof says only that it knows the secret; who judges the hello compares the rest
// (ControlPlane::judge()).
struct Hello {
  uint16_t version = kWireVersion;
  Role role = Role::kControl;
  bool sealed = false;       // by TLS behind the handshake
  uint16_t connection = 0;   // index within the link
  uint16_t connections = 1;  // of the link
  uint64_t communicator = 0;
  uint64_t epoch = 0;
  uint32_t rank = 0;         // of the dialer
  uint32_t destination = 0;  // the rank that the dialer means to reach
  uint32_t world = 0;
  uint64_t shared_hash = 0;  // Config::shared_hash()
  uint64_t session = 0;      // hash of the roster: two processes with the same one were started together
  std::string job_id;        // bounded_job_id()
  Nonce nonce{};
  Mac mac{};

  bool operator==(const Hello&) const = default;
};

// Why a connection was refused. Values are on the wire.
enum class AnswerCode : uint16_t {
  kWelcome = 0,
  kVersion = 1,
  kJob = 2,
  kWorld = 3,
  kRank = 4,        // out of range, not the one that was meant, or already connected
  kShared = 5,      // settings that must be equal differ
  kSession = 6,     // another start of the same job
  kBusy = 7,        // too many connections wait; worth another try
  kForbidden = 8,   // not a connection that this side expects
  kAuthFailed = 9,  // the dialer does not know the secret
};

// The acceptor's verdict on a hello.
struct Answer {
  uint16_t version = kWireVersion;
  AnswerCode code = AnswerCode::kWelcome;
  uint32_t rank = 0;    // of the acceptor
  bool sealed = false;  // what follows, by TLS; the dialer checks it
  Nonce nonce{};
  Mac mac{};
  std::string text;  // the reason in words; at most kMaxAnswerTextBytes, cut when encoded

  bool operator==(const Answer&) const = default;
};

std::string encode(const Hello& hello);
std::string encode(const Answer& answer);

// nullopt: not Rondo, or malformed. Of another version only `version` is decoded: the layout beyond it may differ.
std::optional<Hello> parse_hello(std::string_view bytes);
std::optional<Answer> parse_answer(std::string_view bytes);

// Whether bytes that have come so far can still become a Hello: another protocol is recognized by its first wrong byte.
bool could_be_hello(std::string_view prefix);

// The job id itself if it fits, else its beginning and a hash of all of it.
std::string bounded_job_id(std::string_view job_id);

}  // namespace rondo
