#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kInt8 = integer_row<Loops, Int8, Uint8>();
constexpr KernelRow kUint8 = integer_row<Loops, Uint8, Uint8>();
constexpr KernelRow kBool = bool_row<Loops>();

}  // namespace rondo::RONDO_KERNEL_SET
