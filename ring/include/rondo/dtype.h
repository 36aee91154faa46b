#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo {

// Element types, the only list. The values are part of the wire format (the fingerprint covers them) and of the C API:
// never renumber, only append.
enum class DType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt16 = 2,
  kUint16 = 3,
  kInt32 = 4,
  kUint32 = 5,
  kInt64 = 6,
  kUint64 = 7,
  kFloat16 = 8,   // IEEE 754 binary16; folded in float32
  kBfloat16 = 9,  // the upper half of a float32; folded in float32
  kFloat32 = 10,
  kFloat64 = 11,
  kBool = 12,        // one byte: 0 is false, anything else true; results are 0 or 1
  kFloat8E4M3 = 13,  // "fn": no infinity, overflow is NaN, up to 448; folded in float32
  kFloat8E5M2 = 14,  // the upper half of a float16; folded in float32
};

inline constexpr int kDTypes = 15;

inline constexpr uint8_t kDTypeBytes[kDTypes] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1};
// Bytes of one element: 1, 2, 4 or 8; 0 for a value outside the list.
constexpr size_t dtype_bytes(DType dtype) {
  return static_cast<size_t>(dtype) < kDTypes ? kDTypeBytes[static_cast<size_t>(dtype)] : 0;
}

constexpr bool dtype_is_float(DType dtype) {
  return (dtype >= DType::kFloat16 && dtype <= DType::kFloat64) || dtype == DType::kFloat8E4M3 ||
         dtype == DType::kFloat8E5M2;
}

inline constexpr const char* kDTypeNames[kDTypes] = {"int8",    "uint8",   "int16",  "uint16",      "int32",
                                                     "uint32",  "int64",   "uint64", "float16",     "bfloat16",
                                                     "float32", "float64", "bool",   "float8_e4m3", "float8_e5m2"};
// "int8" ... "float16", "bfloat16", "float32", "float64", "bool", "float8_e4m3", "float8_e5m2"; "dtype?" for a value
// outside the list.
constexpr const char* dtype_name(DType dtype) {
  return static_cast<size_t>(dtype) < kDTypes ? kDTypeNames[static_cast<size_t>(dtype)] : "dtype?";
}

}  // namespace rondo
