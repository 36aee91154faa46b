#include "kernels/device/gpu_fold.cuh"

namespace rondo {

const FoldRow& integer_fold_row(int dtype) {
  static constexpr IntegerRows kRows = integer_rows<GpuKernels>();
  return kRows.of[dtype];
}

}  // namespace rondo
