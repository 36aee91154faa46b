// Calls as kernels (call_lane.h), one a dtype: rondo_call_0 .. rondo_call_14 by DType. All take a DeviceCall; a block
// is a lane.
#include "kernels/device/gpu_lane.h"

namespace rondo {
namespace {

template <int kDType>
__device__ __forceinline__ void run_lane(const DeviceCall& call) {
  __shared__ LaneState state;
  GpuLane<kDType> machine;
  CallLane<GpuLane<kDType>>(machine, call, state).run();
}

}  // namespace
}  // namespace rondo

#define RONDO_CALL_KERNEL(dtype)                                                                     \
  extern "C" __global__ void __launch_bounds__(rondo::kThreadsABlock, rondo::kBlocksAMultiprocessor) \
      rondo_call_##dtype(const __grid_constant__ rondo::DeviceCall call) {                           \
    rondo::run_lane<dtype>(call);                                                                    \
  }

RONDO_CALL_KERNEL(0)
RONDO_CALL_KERNEL(2)
RONDO_CALL_KERNEL(4)
RONDO_CALL_KERNEL(6)
RONDO_CALL_KERNEL(8)
RONDO_CALL_KERNEL(9)
RONDO_CALL_KERNEL(10)
RONDO_CALL_KERNEL(11)
RONDO_CALL_KERNEL(12)
RONDO_CALL_KERNEL(13)
RONDO_CALL_KERNEL(14)
static_assert(rondo::kDTypes == 15);
