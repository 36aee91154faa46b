#include "kernels/rows/row.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kFloat32 = float_row<Float32, Float32>();

}  // namespace rondo::RONDO_KERNEL_SET
