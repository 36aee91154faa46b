// The passes of all dtypes, made by Maker (rows/row.h): arrays in the order of DType.
#pragma once

#include "kernels/device/fold_pass.h"
#include "kernels/rows/row.h"

namespace rondo {
namespace {

constexpr int kIntegers = 8;  // DTypes up to kUint64; those behind it are floats and bool
static_assert(int(DType::kUint64) == kIntegers - 1 && int(DType::kFloat16) == kIntegers);
static_assert(int(DType::kFloat8E5M2) == kDTypes - 1 && int(DType::kBool) == int(DType::kFloat64) + 1);

struct IntegerRows {
  FoldRow of[kIntegers];
};
struct OtherRows {
  FoldRow of[kDTypes - kIntegers];
};

template <class Maker>
constexpr IntegerRows integer_rows() {
  return {{integer_row<Maker, Int8, Uint8>(), integer_row<Maker, Uint8, Uint8>(), integer_row<Maker, Int16, Uint16>(),
           integer_row<Maker, Uint16, Uint16>(), integer_row<Maker, Int32, Uint32>(),
           integer_row<Maker, Uint32, Uint32>(), integer_row<Maker, Int64, Uint64>(),
           integer_row<Maker, Uint64, Uint64>()}};
}

template <class Maker, class Format>
constexpr FoldRow float_row_of() {
  return float_row<Maker, Format, Format>();
}

template <class Maker>
constexpr OtherRows other_rows() {
  return {{float_row_of<Maker, SoftFloat16>(), float_row_of<Maker, SoftBfloat16>(), float_row_of<Maker, Float32>(),
           float_row_of<Maker, Float64>(), bool_row<Maker>(), float_row_of<Maker, SoftFloat8E4M3>(),
           float_row_of<Maker, SoftFloat8E5M2>()}};
}

}  // namespace
}  // namespace rondo
