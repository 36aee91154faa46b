#include <cstring>

#include "kernels/crc32c_tables.h"

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

// The instruction takes three cycles and another can begin each cycle: three parts side by side, put together by
// multiplication. Long parts for the bulk, short ones for what is left.
constexpr size_t kLong = 2048, kShort = 128;
constexpr auto kBehindLong = crc32c_rows<4>(kLong - 3);
constexpr auto kBehindShort = crc32c_rows<4>(kShort - 3);

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

uint64_t word_at(const unsigned char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

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

Crc32cUpdate crc32c_instruction() { return has_instruction() ? by_instruction : nullptr; }

}  // namespace rondo
