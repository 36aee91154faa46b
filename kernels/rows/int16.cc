#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kInt16 = integer_row<Loops, Int16, Uint16>();
constexpr KernelRow kUint16 = integer_row<Loops, Uint16, Uint16>();

}  // namespace rondo::RONDO_KERNEL_SET
