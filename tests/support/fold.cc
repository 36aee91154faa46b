#include "tests/support/fold.h"

#include "tests/support/element.h"

namespace rondo::testing {
namespace {

bool fold_bools(Op op, bool left, bool right) {
  switch (op) {
    case Op::kProduct:
    case Op::kMin:
    case Op::kBitAnd:
    case Op::kLogicalAnd:
      return left && right;
    case Op::kBitXor:
    case Op::kLogicalXor:
      return left != right;
    default:
      return left || right;
  }
}

bool integer_less(DType dtype, uint64_t left, uint64_t right) {
  return is_signed_integer(dtype) ? as_signed(dtype, left) < as_signed(dtype, right) : left < right;
}

}  // namespace

bool is_logical(Op op) { return op == Op::kLogicalAnd || op == Op::kLogicalOr || op == Op::kLogicalXor; }

uint64_t fold_integers(DType dtype, Op op, uint64_t left, uint64_t right) {
  if (dtype == DType::kBool || is_logical(op)) return fold_bools(op, left != 0, right != 0);
  switch (op) {
    case Op::kProduct:
      return low_bits(dtype, left * right);
    case Op::kMin:
      return integer_less(dtype, left, right) ? left : right;
    case Op::kMax:
      return integer_less(dtype, left, right) ? right : left;
    case Op::kBitAnd:
      return left & right;
    case Op::kBitOr:
      return left | right;
    case Op::kBitXor:
      return left ^ right;
    default:
      return low_bits(dtype, left + right);
  }
}

}  // namespace rondo::testing
