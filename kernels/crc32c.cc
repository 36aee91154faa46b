#include "kernels/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define RONDO_WITH_CRC __attribute__((target("sse4.2")))
#else
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define RONDO_WITH_CRC __attribute__((target("+crc")))
#endif

namespace rondo {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as bytes in order");

// x^32 + x^28 + ... + 1 without its highest term, the coefficient of x^31 in the lowest bit: so are all polynomials
// here.
constexpr uint32_t kPolynomial = 0x82f63b78;

// Modulo the polynomial.
constexpr uint32_t multiply(uint32_t one, uint32_t other) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((one & bit) != 0) product ^= other;
    other = (other >> 1) ^ ((other & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

// x^exponent
constexpr uint32_t power_of_x(uint64_t exponent) {
  uint32_t power = 0x80000000, square = 0x40000000;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = multiply(power, square);
    square = multiply(square, square);
  }
  return power;
}

// [k][b]: the byte b times x^(8 (behind + k)).
template <size_t kCount>
constexpr std::array<std::array<uint32_t, 256>, kCount> rows_behind(uint64_t behind) {
  std::array<std::array<uint32_t, 256>, kCount> rows{};
  for (size_t row = 0; row < kCount; ++row) {
    const uint32_t power = power_of_x(8 * (behind + row));
    for (uint32_t byte = 0; byte < 256; ++byte) rows[row][byte] = multiply(byte, power);
  }
  return rows;
}

uint64_t word_at(const unsigned char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// --- By a table. The state is the register behind the bytes so far; it begins as all ones, and is inverted at the end.

// Eight bytes at a time, each with a row of its own.
constexpr auto kRows = rows_behind<8>(1);

uint32_t by_table(uint32_t state, const unsigned char* at, size_t bytes) {
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const uint64_t word = word_at(at) ^ state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= kRows[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; bytes > 0; ++at, --bytes) state = (state >> 8) ^ kRows[0][(state ^ *at) & 0xff];
  return state;
}

// --- By the processor's instruction.

// The instruction takes three cycles and another can begin each cycle: three parts side by side, put together by
// multiplication. Long parts for the bulk, short ones for what is left.
constexpr size_t kLong = 2048, kShort = 128;
constexpr auto kBehindLong = rows_behind<4>(kLong - 3);
constexpr auto kBehindShort = rows_behind<4>(kShort - 3);

// The state with so many zero bytes behind it.
template <typename Rows>
uint32_t moved(const Rows& rows, uint32_t state) {
  // The lowest byte of a state has the highest powers: it is as far before the end as the fourth row.
  return rows[3][state & 0xff] ^ rows[2][(state >> 8) & 0xff] ^ rows[1][(state >> 16) & 0xff] ^ rows[0][state >> 24];
}

#if defined(__x86_64__)
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
RONDO_WITH_CRC uint64_t with_word(uint64_t state, uint64_t word) { return _mm_crc32_u64(state, word); }
RONDO_WITH_CRC uint32_t with_byte(uint32_t state, unsigned char byte) { return _mm_crc32_u8(state, byte); }
#else
bool has_instruction() { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
RONDO_WITH_CRC uint64_t with_word(uint64_t state, uint64_t word) { return __crc32cd(uint32_t(state), word); }
RONDO_WITH_CRC uint32_t with_byte(uint32_t state, unsigned char byte) { return __crc32cb(state, byte); }
#endif

// Takes whole runs of three parts, and moves `at` and `bytes` past them. Only the first part begins with the state; the
// other two begin with 0, and moved() puts the state before them.
template <typename Rows>
RONDO_WITH_CRC uint32_t in_three(const Rows& rows, size_t part, uint32_t state, const unsigned char*& at,
                                 size_t& bytes) {
  for (; bytes >= 3 * part; at += 3 * part, bytes -= 3 * part) {
    uint64_t first = state, second = 0, third = 0;
    for (size_t i = 0; i < part; i += 8) {
      first = with_word(first, word_at(at + i));
      second = with_word(second, word_at(at + part + i));
      third = with_word(third, word_at(at + 2 * part + i));
    }
    state = moved(rows, static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    state = moved(rows, state) ^ static_cast<uint32_t>(third);
  }
  return state;
}

RONDO_WITH_CRC uint32_t by_instruction(uint32_t state, const unsigned char* at, size_t bytes) {
  state = in_three(kBehindLong, kLong, state, at, bytes);
  state = in_three(kBehindShort, kShort, state, at, bytes);
  uint64_t wide = state;
  for (; bytes >= 8; at += 8, bytes -= 8) wide = with_word(wide, word_at(at));
  state = static_cast<uint32_t>(wide);
  for (; bytes > 0; ++at, --bytes) state = with_byte(state, *at);
  return state;
}

}  // namespace

uint32_t crc32c_by_table(const void* data, size_t bytes, uint32_t before) {
  return ~by_table(~before, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32c(const void* data, size_t bytes, uint32_t before) {
  static const auto update = has_instruction() ? by_instruction : by_table;
  return ~update(~before, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace rondo
