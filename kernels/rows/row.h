// Which folds a dtype has, once for processors and GPUs. Maker::of<K>() is what a fold becomes: an entry of Maker::Row.
#pragma once

#include "kernels/fold.h"

namespace rondo {
namespace {

// Operations on truth values. Their Format holds one element, whatever the dtype's other kernels hold.
template <class Maker, class Format>
constexpr void add_logical(typename Maker::Row& row) {
  row.folds[int(Fold::kLogicalAnd)] = Maker::template of<Logical<Format, BitAnd>>();
  row.folds[int(Fold::kLogicalOr)] = Maker::template of<Logical<Format, BitOr>>();
  row.folds[int(Fold::kLogicalXor)] = Maker::template of<Logical<Format, BitXor>>();
}

// Only min, max and the average depend on the sign: the rest is the same code for Format and Unsigned.
template <class Maker, class Format, class Unsigned>
constexpr typename Maker::Row integer_row() {
  typename Maker::Row row = {};
  row.folds[int(Fold::kSum)] = Maker::template of<Plain<Unsigned, Add>>();
  row.folds[int(Fold::kProduct)] = Maker::template of<Plain<Unsigned, IntegerMultiply>>();
  row.folds[int(Fold::kMin)] = Maker::template of<Plain<Ordered<Format>, IntegerMin>>();
  row.folds[int(Fold::kMax)] = Maker::template of<Plain<Ordered<Format>, IntegerMax>>();
  row.folds[int(Fold::kBitAnd)] = Maker::template of<Plain<Unsigned, BitAnd>>();
  row.folds[int(Fold::kBitOr)] = Maker::template of<Plain<Unsigned, BitOr>>();
  row.folds[int(Fold::kBitXor)] = Maker::template of<Plain<Unsigned, BitXor>>();
  row.folds[int(Fold::kDividedSum)] = Maker::template of<IntegerAverage<Format>>();
  add_logical<Maker, Unsigned>(row);
  return row;
}

// Stored: the same dtype, one element at a time.
template <class Maker, class Format, class Stored>
constexpr typename Maker::Row float_row() {
  typename Maker::Row row = {};
  row.folds[int(Fold::kSum)] = Maker::template of<Plain<Format, Add>>();
  row.folds[int(Fold::kProduct)] = Maker::template of<Plain<Format, Multiply>>();
  row.folds[int(Fold::kMin)] = Maker::template of<Plain<Format, FloatMin>>();
  row.folds[int(Fold::kMax)] = Maker::template of<Plain<Format, FloatMax>>();
  row.folds[int(Fold::kScaledRoundedSum)] = Maker::template of<ScaledRoundedSum<Format>>();
  if constexpr (Stored::kScalesAverages) {
    row.folds[int(Fold::kScaledSum)] = Maker::template of<ScaledSum<Format>>();
  } else {
    row.folds[int(Fold::kDividedSum)] = Maker::template of<FloatAverage<Format>>();
  }
  add_logical<Maker, Stored>(row);
  return row;
}

// Bytes are true or false: sum and max are "or", product and min are "and".
template <class Maker>
constexpr typename Maker::Row bool_row() {
  typename Maker::Row row = {};
  auto& folds = row.folds;
  add_logical<Maker, Uint8>(row);
  folds[int(Fold::kSum)] = folds[int(Fold::kMax)] = folds[int(Fold::kBitOr)] = folds[int(Fold::kLogicalOr)];
  folds[int(Fold::kProduct)] = folds[int(Fold::kMin)] = folds[int(Fold::kBitAnd)] = folds[int(Fold::kLogicalAnd)];
  folds[int(Fold::kBitXor)] = folds[int(Fold::kLogicalXor)];
  return row;
}

}  // namespace
}  // namespace rondo
