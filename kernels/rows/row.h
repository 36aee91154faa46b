// What the files of this folder share: each defines the kernels of one width, compiled once an instruction set.
#pragma once

#include "kernels/combine_body.h"
#include "kernels/rows/rows.h"

namespace rondo {
namespace {

template <class Format>
constexpr void add_logical(KernelRow& row) {
  row.folds[int(Fold::kLogicalAnd)] = kernels_of<Logical<Format, BitAnd>>();
  row.folds[int(Fold::kLogicalOr)] = kernels_of<Logical<Format, BitOr>>();
  row.folds[int(Fold::kLogicalXor)] = kernels_of<Logical<Format, BitXor>>();
}

// Only min, max and the average depend on the sign: the rest is the same code for Format and Unsigned.
template <class Format, class Unsigned>
constexpr KernelRow integer_row() {
  KernelRow row = {};
  row.folds[int(Fold::kSum)] = kernels_of<Plain<Unsigned, Add>>();
  row.folds[int(Fold::kProduct)] = kernels_of<Plain<Unsigned, IntegerMultiply>>();
  row.folds[int(Fold::kMin)] = kernels_of<Plain<Ordered<Format>, IntegerMin>>();
  row.folds[int(Fold::kMax)] = kernels_of<Plain<Ordered<Format>, IntegerMax>>();
  row.folds[int(Fold::kBitAnd)] = kernels_of<Plain<Unsigned, BitAnd>>();
  row.folds[int(Fold::kBitOr)] = kernels_of<Plain<Unsigned, BitOr>>();
  row.folds[int(Fold::kBitXor)] = kernels_of<Plain<Unsigned, BitXor>>();
  row.folds[int(Fold::kDividedSum)] = kernels_of<IntegerAverage<Format>>();
  add_logical<Unsigned>(row);
  return row;
}

// Stored: the same dtype, one element at a time.
template <class Format, class Stored>
constexpr KernelRow float_row() {
  KernelRow row = {};
  row.folds[int(Fold::kSum)] = kernels_of<Plain<Format, Add>>();
  row.folds[int(Fold::kProduct)] = kernels_of<Plain<Format, Multiply>>();
  row.folds[int(Fold::kMin)] = kernels_of<Plain<Format, FloatMin>>();
  row.folds[int(Fold::kMax)] = kernels_of<Plain<Format, FloatMax>>();
  row.folds[int(Fold::kScaledRoundedSum)] = kernels_of<ScaledRoundedSum<Format>>();
  if constexpr (Stored::kScalesAverages) {
    row.folds[int(Fold::kScaledSum)] = kernels_of<ScaledSum<Format>>();
  } else {
    row.folds[int(Fold::kDividedSum)] = kernels_of<FloatAverage<Format>>();
  }
  add_logical<Stored>(row);
  return row;
}

constexpr KernelRow bool_row() {
  KernelRow row = {};
  Kernels(&folds)[kFolds] = row.folds;
  add_logical<Uint8>(row);
  folds[int(Fold::kSum)] = folds[int(Fold::kMax)] = folds[int(Fold::kBitOr)] = folds[int(Fold::kLogicalOr)];
  folds[int(Fold::kProduct)] = folds[int(Fold::kMin)] = folds[int(Fold::kBitAnd)] = folds[int(Fold::kLogicalAnd)];
  folds[int(Fold::kBitXor)] = folds[int(Fold::kLogicalXor)];
  return row;
}

}  // namespace
}  // namespace rondo
