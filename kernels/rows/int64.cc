#include "kernels/combine_body.h"
#include "kernels/rows/row.h"
#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

constexpr KernelRow kInt64 = integer_row<Loops, Int64, Uint64>();
constexpr KernelRow kUint64 = integer_row<Loops, Uint64, Uint64>();

}  // namespace rondo::RONDO_KERNEL_SET
