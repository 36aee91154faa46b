#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kFloat16 = float_row<Loops, Float16, SoftFloat16>();

}  // namespace rondo::RONDO_KERNEL_SET
