#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kBfloat16 = float_row<Loops, Bfloat16, SoftBfloat16>();

}  // namespace rondo::RONDO_KERNEL_SET
