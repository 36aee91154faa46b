#include "kernels/rows/rows.h"

namespace rondo::RONDO_KERNEL_SET {

// In the order of DType.
constexpr KernelTable kKernels = {{&kInt8, &kUint8, &kInt16, &kUint16, &kInt32, &kUint32, &kInt64, &kUint64, &kFloat16,
                                   &kBfloat16, &kFloat32, &kFloat64, &kBool, &kFloat8E4M3, &kFloat8E5M2},
                                  &kWire,
                                  select_by_magnitude,
                                  &kPackBfloat16,
                                  &kPackFloat32};
static_assert(static_cast<int>(DType::kFloat8E5M2) == kDTypes - 1);

}  // namespace rondo::RONDO_KERNEL_SET
