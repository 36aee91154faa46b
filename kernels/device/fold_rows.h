// What a thread does in the pass of every dtype and fold: the code of GPUs, and of tests on processors.
#pragma once

#include "kernels/device/fold_pass.h"
#include "kernels/rows/row.h"

namespace rondo {
namespace {

using ThreadFold = void (*)(const Pass& pass, ThreadPlace place);

// The folds of one dtype, by Fold; nullptr where the pair is not defined.
struct ThreadFolds {
  ThreadFold folds[kFolds];
};
// What row.h makes of a fold for a thread of a device.
struct ThreadFoldsMaker {
  using Row = ThreadFolds;
  template <class K>
  static constexpr ThreadFold of() {
    return fold_thread<K>;
  }
};

template <class Format>
constexpr ThreadFolds float_folds() {
  return float_row<ThreadFoldsMaker, Format, Format>();
}

// By DType.
struct AllThreadFolds {
  ThreadFolds of[kDTypes];
};
constexpr AllThreadFolds kThreadFolds = {
    {integer_row<ThreadFoldsMaker, Int8, Uint8>(), integer_row<ThreadFoldsMaker, Uint8, Uint8>(),
     integer_row<ThreadFoldsMaker, Int16, Uint16>(), integer_row<ThreadFoldsMaker, Uint16, Uint16>(),
     integer_row<ThreadFoldsMaker, Int32, Uint32>(), integer_row<ThreadFoldsMaker, Uint32, Uint32>(),
     integer_row<ThreadFoldsMaker, Int64, Uint64>(), integer_row<ThreadFoldsMaker, Uint64, Uint64>(),
     float_folds<SoftFloat16>(), float_folds<SoftBfloat16>(), float_folds<Float32>(), float_folds<Float64>(),
     bool_row<ThreadFoldsMaker>(), float_folds<SoftFloat8E4M3>(), float_folds<SoftFloat8E5M2>()}};
static_assert(int(DType::kUint64) == 7 && int(DType::kFloat16) == 8 && int(DType::kFloat64) == 11 &&
              int(DType::kBool) == 12 && int(DType::kFloat8E5M2) == kDTypes - 1);

}  // namespace
}  // namespace rondo
