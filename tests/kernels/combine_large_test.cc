// Counts beyond 2^31 elements and buffers beyond 4 GiB are exact. 4.3 GiB of memory.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "kernels/combine.h"

namespace rondo {
namespace {

void check_in_place(DType dtype, size_t count, size_t source_bytes) {
  const size_t bytes = count * dtype_bytes(dtype);
  std::unique_ptr<uint8_t[]> memory(new uint8_t[bytes + (source_bytes == 0 ? 0 : source_bytes)]);
  uint8_t* left = memory.get();
  // Without a second buffer the left one is both operands.
  uint8_t* right = source_bytes == 0 ? left : left + bytes;
  for (size_t i = 0; i < bytes; i += 4096)
    std::memset(left + i, static_cast<int>(i / 4096 % 97), bytes - i < 4096 ? bytes - i : 4096);
  if (right != left) std::memset(right, 3, bytes);
  const void* sources[] = {left, right};
  void* target = left;
  combine({.dtype = dtype, .op = Op::kSum},
          {.sources = sources, .targets = &target, .source_count = 2, .target_count = 1}, count);
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i) {
    const uint8_t before = static_cast<uint8_t>(i / 4096 % 97);
    wrong += left[i] != static_cast<uint8_t>(before + (right == left ? before : 3));
  }
  CHECK(wrong == 0);
}

TEST_CASE("2^31 + 7 elements of int8") {
  // No count or offset is kept in 32 bits; two buffers of 2 GiB.
  constexpr size_t kCount = (size_t{1} << 31) + 7;
  check_in_place(DType::kInt8, kCount, kCount);
}

TEST_CASE("2^32 + 9 bytes of one buffer") {
  // Byte offsets beyond 4 GiB; no carry between bytes since twice 96 is below 256.
  check_in_place(DType::kUint8, (size_t{1} << 32) + 9, 0);
}

}  // namespace
}  // namespace rondo
