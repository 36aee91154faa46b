#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kFloat8E4M3 = float_row<Loops, Float8E4M3, SoftFloat8E4M3>();
constexpr KernelRow kFloat8E5M2 = float_row<Loops, Float8E5M2, SoftFloat8E5M2>();

}  // namespace rondo::RONDO_KERNEL_SET
