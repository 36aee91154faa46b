#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/crc32c.h"

namespace rondo {

// The header before every slice on a byte stream: 32 bytes, little-endian (docs/wire.md).
//   0 u32 payload bytes    4 u16 flags (1: checked)    6 u16 check of the header    8 u32 slice index, modulo 2^32
//   12 u32 checksum    16 u64 operation sequence    24 u64 fingerprint
// Not checked: check and checksum are 0.
inline constexpr size_t kSliceHeaderBytes = 32;
static_assert(std::endian::native == std::endian::little, "headers are written as they lie in memory");

// A received one is the peer's claim: SliceReceiver::begin_slice() compares each field before it uses it.
struct SliceHeader {
  uint32_t bytes = 0;
  uint16_t flags = 0;
  uint16_t check = 0;
  uint32_t index = 0;
  uint32_t checksum = 0;
  uint64_t sequence = 0;
  uint64_t fingerprint = 0;
};
static_assert(sizeof(SliceHeader) == kSliceHeaderBytes && offsetof(SliceHeader, fingerprint) == 24);

inline constexpr uint16_t kSliceChecked = 1;

// The check that a checked header must have, and the checksum that its slice must have, header included; both by
// CRC-32C.
inline uint16_t slice_header_check(SliceHeader header) {
  header.check = 0;
  return static_cast<uint16_t>(crc32c(&header, sizeof header));
}
inline uint32_t slice_checksum(SliceHeader header, const std::byte* payload) {
  header.check = 0;
  header.checksum = 0;
  return crc32c(payload, header.bytes, crc32c(&header, sizeof header));
}
// Makes it a checked one. The header has a check of its own, since it is used before the payload is there.
inline void seal_slice(SliceHeader& header, const std::byte* payload) {
  header.flags = kSliceChecked;
  header.checksum = slice_checksum(header, payload);
  header.check = slice_header_check(header);
}
// Whether a checked header came as it was sent. The payload's checksum is compared once the payload is there.
inline bool slice_header_intact(const SliceHeader& header) {
  return header.flags == kSliceChecked && header.check == slice_header_check(header);
}

inline SliceHeader read_slice_header(const std::byte* from) {
  SliceHeader header;
  std::memcpy(&header, from, sizeof header);
  return header;
}

}  // namespace rondo
