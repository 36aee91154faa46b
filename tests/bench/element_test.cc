// The bench's own elements and folds are those of tests/support, which the kernels are compared with.
#include "bench/loop/element.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "bench/loop/reference.h"
#include "tests/support/element.h"
#include "tests/support/fold.h"

namespace rondo::bench {
namespace {

uint64_t stored(DType dtype, double value) {
  uint64_t bits = 0;
  store_value(dtype, &bits, value);
  return bits;
}

// All elements of up to 16 bits, else the special ones.
std::vector<uint64_t> elements(DType dtype) {
  if (dtype_bytes(dtype) > 2) return testing::special_values(dtype);
  std::vector<uint64_t> all(size_t{1} << (8 * dtype_bytes(dtype)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

TEST_CASE("finite elements of every float type have one value in bench and tests, and values beside them one element") {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!dtype_is_float(dtype)) continue;
    INFO(dtype_name(dtype));
    const double step = std::ldexp(1.0, -float_format(dtype).fraction_bits - 1);
    for (const uint64_t bits : elements(dtype)) {
      const double value = testing::decode_value(dtype, bits);
      if (!std::isfinite(value)) {
        CHECK_FALSE(std::isfinite(load_value(dtype, &bits)));
        continue;
      }
      REQUIRE_EQ(load_value(dtype, &bits), value);
      for (const double beside : {1.0, 1 + step, 1 - step, 1 + step / 2, 1 + 3 * step / 2}) {
        const uint64_t wanted = testing::encode_value(dtype, value * beside);
        if (!std::isnan(testing::decode_value(dtype, wanted))) REQUIRE_EQ(stored(dtype, value * beside), wanted);
      }
    }
    CHECK_EQ(stored(dtype, HUGE_VAL), testing::encode_value(dtype, HUGE_VAL));
    CHECK_EQ(float_format(dtype).largest, testing::largest_value(dtype));
    CHECK_EQ(float_format(dtype).max_exponent, testing::float_format(dtype).max_exponent);
  }
}

TEST_CASE("integers that are not negative are folded as by the tests' reference") {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype_is_float(dtype)) continue;
    const uint64_t most = dtype == DType::kBool ? 1 : testing::low_bits(dtype, ~uint64_t{0}) / 2;
    for (int o = 0; o < kOps; ++o) {
      const auto op = static_cast<Op>(o);
      if (op == Op::kUser || op == Op::kAverage || !op_supports(op, dtype)) continue;
      INFO(dtype_name(dtype), " ", op_name(op));
      for (const uint64_t left : {uint64_t{0}, uint64_t{1}, most / 3, most}) {
        for (const uint64_t right : {uint64_t{0}, uint64_t{1}, most / 2, most}) {
          CHECK_EQ(fold_integers(dtype, op, std::vector{left, right}), testing::fold_integers(dtype, op, left, right));
        }
      }
    }
  }
}

}  // namespace
}  // namespace rondo::bench
