#include "kernels/rows/row.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kInt8 = integer_row<Int8, Uint8>();
constexpr KernelRow kUint8 = integer_row<Uint8, Uint8>();
constexpr KernelRow kBool = bool_row();

}  // namespace rondo::RONDO_KERNEL_SET
