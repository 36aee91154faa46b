#include "kernels/rows/row.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kBfloat16 = float_row<Bfloat16, SoftBfloat16>();

}  // namespace rondo::RONDO_KERNEL_SET
