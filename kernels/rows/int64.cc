#include "kernels/rows/row.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kInt64 = integer_row<Int64, Uint64>();
constexpr KernelRow kUint64 = integer_row<Uint64, Uint64>();

}  // namespace rondo::RONDO_KERNEL_SET
