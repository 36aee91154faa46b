#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kFloat64 = float_row<Loops, Float64, Float64>();

}  // namespace rondo::RONDO_KERNEL_SET
