#include "tests/support/element.h"

#include <doctest/doctest.h>

#include <cmath>

namespace rondo::testing {

// Proves: the reference that kernels are compared with has the formats that are documented elsewhere.

TEST_CASE("floats of 16 bits round to nearest, ties to even, with denormals and infinities") {
  const auto round_trip = [](DType dtype, double value) { return decode_float(dtype, encode_float(dtype, value)); };
  CHECK(round_trip(DType::kFloat16, 1.0) == 1.0);
  CHECK(round_trip(DType::kFloat16, -65504.0) == -65504.0);
  CHECK(round_trip(DType::kFloat16, 70000.0) == HUGE_VAL);
  CHECK(round_trip(DType::kFloat16, 2049.0) == 2048.0);
  CHECK(round_trip(DType::kFloat16, 2051.0) == 2052.0);
  CHECK(round_trip(DType::kFloat16, 0x1p-24) == 0x1p-24);
  CHECK(round_trip(DType::kFloat16, 0x1.8p-24) == 0x1p-23);
  CHECK(round_trip(DType::kFloat16, 0x1p-26) == 0.0);
  CHECK(round_trip(DType::kBfloat16, 257.0) == 256.0);
  CHECK(round_trip(DType::kBfloat16, 259.0) == 260.0);
  CHECK(round_trip(DType::kFloat32, 16777217.0) == 16777216.0);
  CHECK(std::isnan(round_trip(DType::kFloat16, NAN)));
}

TEST_CASE("the values of 8 bits that other implementations document") {
  // Table 1 of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022).
  const auto e4m3 = [](uint64_t bits) { return decode_float(DType::kFloat8E4M3, bits); };
  const auto e5m2 = [](uint64_t bits) { return decode_float(DType::kFloat8E5M2, bits); };
  CHECK(e4m3(0x7e) == 448);
  CHECK(std::isnan(e4m3(0x7f)));
  CHECK(std::isnan(e4m3(0xff)));
  CHECK(e4m3(0x08) == 0x1p-6);
  CHECK(e4m3(0x01) == 0x1p-9);
  CHECK(e5m2(0x7b) == 57344);
  CHECK(e5m2(0x7c) == HUGE_VAL);
  CHECK(e5m2(0xfc) == -HUGE_VAL);
  CHECK(std::isnan(e5m2(0x7d)));
  CHECK(e5m2(0x04) == 0x1p-14);
  CHECK(e5m2(0x01) == 0x1p-16);
  CHECK(encode_float(DType::kFloat8E4M3, 464) == 0x7e);  // half way to 480, which is odd
  CHECK(encode_float(DType::kFloat8E4M3, -464.25) == 0x7f);
  CHECK(encode_float(DType::kFloat8E4M3, HUGE_VAL) == 0x7f);
  CHECK(encode_float(DType::kFloat8E5M2, 61439) == 0x7b);
  CHECK(encode_float(DType::kFloat8E5M2, -61440) == 0xfc);
}

TEST_CASE("every stored number is encoded as itself") {
  for (DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
    int wrong = 0;
    for (uint64_t bits = 0; bits < uint64_t{1} << (8 * dtype_bytes(dtype)); ++bits) {
      const double value = decode_float(dtype, bits);
      wrong += !std::isnan(value) && encode_float(dtype, value) != bits;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace rondo::testing
