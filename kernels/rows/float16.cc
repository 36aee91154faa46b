#include "kernels/rows/row.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kFloat16 = float_row<Float16, SoftFloat16>();

}  // namespace rondo::RONDO_KERNEL_SET
