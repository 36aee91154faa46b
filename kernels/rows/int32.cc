#include "kernels/rows/row.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kInt32 = integer_row<Int32, Uint32>();
constexpr KernelRow kUint32 = integer_row<Uint32, Uint32>();

}  // namespace rondo::RONDO_KERNEL_SET
