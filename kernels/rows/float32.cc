#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kFloat32 = float_row<Loops, Float32, Float32>();

}  // namespace rondo::RONDO_KERNEL_SET
