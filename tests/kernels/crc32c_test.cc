#include "kernels/crc32c.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace rondo {
namespace {

uint32_t bit_by_bit(const unsigned char* data, size_t bytes) {
  uint32_t state = 0xffffffff;
  for (size_t i = 0; i < bytes; ++i) {
    state ^= data[i];
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~state;
}

TEST_CASE("crc32c: the known values of RFC 3720, B.4") {
  CHECK(crc32c("123456789", 9) == 0xe3069283);
  std::vector<unsigned char> bytes(32, 0);
  CHECK(crc32c(bytes.data(), 32) == 0x8a9136aa);
  std::fill(bytes.begin(), bytes.end(), 0xff);
  CHECK(crc32c(bytes.data(), 32) == 0x62a8ab43);
  std::iota(bytes.begin(), bytes.end(), 0);
  CHECK(crc32c(bytes.data(), 32) == 0x46dd794e);
  CHECK(crc32c(nullptr, 0) == 0);
}

TEST_CASE("crc32c: instruction and table equal the definition at every length and alignment, whole and in parts") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::vector<unsigned char> bytes(20'000);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  std::vector<size_t> lengths(600);
  std::iota(lengths.begin(), lengths.end(), 0);
  for (const size_t more : {1'023, 6'143, 6'144, 6'145, 12'289, 19'000}) lengths.push_back(more);
  for (const size_t length : lengths) {
    const unsigned char* at = bytes.data() + random() % 9;
    const uint32_t expected = bit_by_bit(at, length);
    REQUIRE(crc32c(at, length) == expected);
    REQUIRE(crc32c_by_table(at, length) == expected);
    const size_t cut = length == 0 ? 0 : random() % length;
    REQUIRE(crc32c(at + cut, length - cut, crc32c(at, cut)) == expected);
  }
}

}  // namespace
}  // namespace rondo
