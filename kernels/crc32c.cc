#include "kernels/crc32c.h"

#include <bit>
#include <cstring>

#include "kernels/crc32c_tables.h"

namespace rondo {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as bytes in order");

// Eight bytes at a time, each with a row of its own.
constexpr auto kRows = crc32c_rows<8>(1);

uint32_t by_table(uint32_t state, const unsigned char* at, size_t bytes) {
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    word ^= state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= kRows[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; bytes > 0; ++at, --bytes) state = (state >> 8) ^ kRows[0][(state ^ *at) & 0xff];
  return state;
}

}  // namespace

uint32_t crc32c_by_table(const void* data, size_t bytes, uint32_t before) {
  return ~by_table(~before, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32c(const void* data, size_t bytes, uint32_t before) {
  static const Crc32cUpdate update = crc32c_instruction();
  if (update == nullptr) return crc32c_by_table(data, bytes, before);
  return ~update(~before, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace rondo
