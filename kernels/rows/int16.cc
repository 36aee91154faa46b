#include "kernels/rows/row.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kInt16 = integer_row<Int16, Uint16>();
constexpr KernelRow kUint16 = integer_row<Uint16, Uint16>();

}  // namespace rondo::RONDO_KERNEL_SET
