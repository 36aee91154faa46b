#include "kernels/rows/row.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kFloat64 = float_row<Float64, Float64>();

}  // namespace rondo::RONDO_KERNEL_SET
