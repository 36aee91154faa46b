#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/dtype.h>

namespace rondo {

// Reduction operations, the only list. Values are on the wire and in the C API: never renumber, only append.
// docs/numerics.md is the table of what each one does with each dtype, NaN, infinities and -0.
enum class Op : uint8_t {
  kSum = 0,
  kProduct = 1,
  kMin = 2,  // floats: a NaN wins and becomes the quiet NaN; -0 < +0
  kMax = 3,
  kAverage = 4,  // sum / world; invalid for bool
  kBitAnd = 5,   // integers and bool only
  kBitOr = 6,
  kBitXor = 7,
  kLogicalAnd = 8,  // result 0 or 1 in the dtype
  kLogicalOr = 9,
  kLogicalXor = 10,
  kPremulSum = 11,  // sum of scalar_r * x_r; each product rounded to the dtype first; floats only
  kUser = 255,      // the program's: CallOptions::user
};

inline constexpr int kOps = 12;  // those of the library

// A reduction of the program's, which is associative: inout[i] = in[i] op inout[i] for count elements of element_bytes
// each. Not commutative: the contributions are folded in the order of the ranks; else in any order, the same on all
// ranks. in and inout do not overlap, and are aligned to 16 bytes or the largest power of two that divides
// element_bytes, whichever is less. The function is called on the thread that moves the call, which may be one of the
// library, with parts of the buffers, any number of times. It must not throw, call the library, or wait.
struct UserOp {
  void (*function)(const void* in, void* inout, size_t count, void* context) = nullptr;
  void* context = nullptr;
  uint32_t element_bytes = 0;  // 1 .. kMostUserBytes; the same on all ranks
  bool commutative = true;     // likewise
};
inline constexpr uint32_t kMostUserBytes = 4096;

inline constexpr const char* kOpNames[kOps] = {"sum", "product", "min",  "max", "avg",  "band",
                                               "bor", "bxor",    "land", "lor", "lxor", "premulsum"};
constexpr const char* op_name(Op op) {
  if (op == Op::kUser) return "user";
  return static_cast<size_t>(op) < kOps ? kOpNames[static_cast<size_t>(op)] : "op?";
}

// Whether the pair is defined; kUser has element_bytes instead of a dtype. Averages and premulsum are not for bool;
// bitwise ops not for floats; premulsum only for floats.
constexpr bool op_supports(Op op, DType dtype) {
  if (static_cast<int>(op) >= kOps || static_cast<int>(dtype) >= kDTypes) return false;
  switch (op) {
    case Op::kAverage:
      return dtype != DType::kBool;
    case Op::kBitAnd:
    case Op::kBitOr:
    case Op::kBitXor:
      return !dtype_is_float(dtype);
    case Op::kPremulSum:
      return dtype_is_float(dtype);
    default:
      return true;
  }
}

}  // namespace rondo
