#include "kernels/finite.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace rondo {
namespace {

struct Case {
  DType dtype;
  uint64_t largest;  // finite; as bits
  std::vector<uint64_t> bad;
};

const std::vector<Case> kCases{
    {DType::kFloat16, 0x7bff, {0x7c00, 0xfc00, 0x7e01}},
    {DType::kBfloat16, 0x7f7f, {0x7f80, 0xff80, 0x7fc1}},
    {DType::kFloat32, 0x7f7fffff, {0x7f800000, 0xff800000, 0x7fc00001}},
    {DType::kFloat64, 0x7fefffffffffffff, {0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000001}},
    {DType::kFloat8E4M3, 0x7e, {0x7f, 0xff}},
    {DType::kFloat8E5M2, 0x7b, {0x7c, 0xfc, 0x7d}},
};

TEST_CASE(
    "finite: the first NaN or infinity is found by its index, at every place, and the largest number is neither") {
  for (const Case& of : kCases) {
    CAPTURE(dtype_name(of.dtype));
    const size_t size = dtype_bytes(of.dtype);
    for (const uint64_t count : {1, 7, 1'023, 1'024, 1'025, 3'000}) {
      std::vector<unsigned char> memory(count * size + 1);
      unsigned char* data = memory.data() + 1;  // misaligned
      for (uint64_t i = 0; i < count; ++i) std::memcpy(data + i * size, &of.largest, size);
      CHECK_FALSE(first_not_finite(data, count, of.dtype));
      for (const uint64_t bad : of.bad) {
        for (const uint64_t at : {uint64_t{0}, count / 2, count - 1}) {
          std::memcpy(data + at * size, &bad, size);
          CHECK(first_not_finite(data, count, of.dtype) == at);
          std::memcpy(data + (count - 1) * size, &bad, size);  // a later one changes nothing
          CHECK(first_not_finite(data, count, of.dtype) == at);
          for (const uint64_t mend : {at, count - 1}) std::memcpy(data + mend * size, &of.largest, size);
        }
      }
    }
  }
  const uint32_t ones = 0xffffffff;
  CHECK_FALSE(first_not_finite(&ones, 1, DType::kInt32));
  CHECK_FALSE(first_not_finite(nullptr, 0, DType::kFloat32));
}

}  // namespace
}  // namespace rondo
