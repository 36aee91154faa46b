#pragma once

// Private to crc32c*.cc.

#include <array>
#include <cstddef>
#include <cstdint>

namespace rondo {

// The register behind these bytes; it begins as all ones, and is inverted at the end.
using Crc32cUpdate = uint32_t (*)(uint32_t state, const unsigned char* data, size_t bytes);

// By the processor's instruction; nullptr: it has none.
Crc32cUpdate crc32c_instruction();

// x^32 + x^28 + ... + 1 without its highest term, the coefficient of x^31 in the lowest bit: so are all polynomials
// here.
inline constexpr uint32_t kCrc32cPolynomial = 0x82f63b78;

// Modulo the polynomial.
constexpr uint32_t crc32c_multiply(uint32_t one, uint32_t other) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((one & bit) != 0) product ^= other;
    other = (other >> 1) ^ ((other & 1) != 0 ? kCrc32cPolynomial : 0);
  }
  return product;
}

// x^exponent
constexpr uint32_t crc32c_power(uint64_t exponent) {
  uint32_t power = 0x80000000, square = 0x40000000;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = crc32c_multiply(power, square);
    square = crc32c_multiply(square, square);
  }
  return power;
}

// [k][b]: the byte b times x^(8 (behind + k)).
template <size_t kRows>
constexpr std::array<std::array<uint32_t, 256>, kRows> crc32c_rows(uint64_t behind) {
  std::array<std::array<uint32_t, 256>, kRows> rows{};
  for (size_t row = 0; row < kRows; ++row) {
    const uint32_t power = crc32c_power(8 * (behind + row));
    for (uint32_t byte = 0; byte < 256; ++byte) rows[row][byte] = crc32c_multiply(byte, power);
  }
  return rows;
}

}  // namespace rondo
