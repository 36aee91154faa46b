#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "rondo/dtype.h"

namespace rondo {

// Kinds of frames on a p2p stream: one envelope each, for some kinds followed by a payload. docs/wire-p2p.md.
enum class P2pKind : uint8_t {
  // from the sender
  kEager = 1,    // a message; its payload of `bytes` follows
  kRequest = 2,  // a message whose payload, and whose sender, wait for kClear; `offset`: where it can be read, or 0
  kData = 3,     // `bytes` of the payload of request `sequence`, from `offset` on; they follow. 0: it was read
  kEnd = 4,      // no more messages on this stream
  // from the receiver
  kCredit = 5,  // `bytes` of the pool and `slots` for messages are free again
  kClear = 6,   // request `sequence` has a receive, which takes its first `bytes`: send them from `offset` on
  kRefuse = 7,  // message `sequence` (`bytes`, `dtype`, `tag`) met a receive of `offset` bytes and `receive_dtype`
};

inline constexpr size_t kP2pEnvelopeBytes = 64;
inline constexpr uint32_t kP2pMagic = 0x70327031;  // "1p2p" in memory
inline constexpr uint32_t kP2pMaxTag = 0x7fffffff;
// No memory is larger, and offsets and sums of two lengths cannot overflow.
inline constexpr uint64_t kP2pMaxBytes = uint64_t{1} << 62;

// An envelope as it lies on the wire, little-endian. A cache line.
struct P2pEnvelope {
  uint32_t magic = kP2pMagic;
  P2pKind kind = P2pKind::kEager;
  DType dtype = DType::kInt8;
  DType receive_dtype = DType::kInt8;
  uint8_t checked = 0;  // flags; 1: on streams whose frames carry checksums
  uint64_t communicator = 0;
  uint64_t bytes = 0;
  uint64_t sequence = 0;  // of the message, per pair and direction, from 0
  uint64_t offset = 0;
  uint32_t tag = 0;
  uint32_t slots = 0;
  uint32_t checksum = 0;  // where checked: CRC-32C of the payload that follows; 0 without one
  uint32_t check = 0;     // by p2p_encode(), where checked: CRC-32C of all this with a check of 0
  uint64_t reserved = 0;
  bool operator==(const P2pEnvelope&) const = default;
};
static_assert(sizeof(P2pEnvelope) == kP2pEnvelopeBytes && std::is_trivially_copyable_v<P2pEnvelope>);
static_assert(std::endian::native == std::endian::little, "the wire is little-endian; other hosts must swap here");

void p2p_encode(const P2pEnvelope& envelope, std::byte* out);
// Reads the kP2pEnvelopeBytes at `in`. nullptr, or what is wrong with them. It checks every field by itself;
// the reader checks what depends on the state of the stream (credit, sequence).
const char* p2p_decode(const std::byte* in, uint64_t communicator, P2pEnvelope* envelope, bool checked = false);
// Whether the envelope has the checksum that a sender on a checked stream gives it.
bool p2p_intact(const std::byte* in);

}  // namespace rondo
