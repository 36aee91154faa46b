#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kInt32 = integer_row<Loops, Int32, Uint32>();
constexpr KernelRow kUint32 = integer_row<Loops, Uint32, Uint32>();

}  // namespace rondo::RONDO_KERNEL_SET
