#include "transport/tcp/slice_header.h"

#include "kernels/crc32c.h"

namespace rondo {
namespace {

uint16_t check_of(SliceHeader header) {
  header.check = 0;
  return static_cast<uint16_t>(crc32c(&header, sizeof header));
}

}  // namespace

uint32_t slice_checksum(const SliceHeader& header, const std::byte* payload) {
  SliceHeader bare = header;
  bare.check = 0;
  bare.checksum = 0;
  return crc32c(payload, header.bytes, crc32c(&bare, sizeof bare));
}

void seal_slice(SliceHeader& header, const std::byte* payload) {
  header.flags = kSliceChecked;
  header.checksum = slice_checksum(header, payload);
  header.check = check_of(header);
}

bool slice_header_intact(const SliceHeader& header) {
  return header.flags == kSliceChecked && header.check == check_of(header);
}

}  // namespace rondo
