// The lanes of wire_pass.h as kernels: a warp a block of 128 elements.
#include "kernels/device/gpu_wire.h"

#include <cuda_runtime.h>

#include "kernels/device/gpu_launch.h"
#include "kernels/device/wire_pass.h"

namespace rondo {
namespace {

constexpr int kThreadsABlock = 256;
constexpr int kBlocksAMultiprocessor = 8;  // 2,048 threads with at most 32 registers each

struct WarpPlace {
  uint64_t index;
  uint64_t count;
  int lane;
};
__device__ WarpPlace warp_place() {
  const uint64_t thread = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  return {thread / kLanes, uint64_t(gridDim.x) * blockDim.x / kLanes, int(thread % kLanes)};
}

RONDO_INLINE uint64_t blocks_of(const DeviceWire& wire) { return (wire.count + kElements - 1) / kElements; }

template <class Code>
__global__ void __launch_bounds__(kThreadsABlock) encode_kernel(const __grid_constant__ DeviceWire wire) {
  const WarpPlace place = warp_place();
  for (uint64_t block = place.index; block < blocks_of(wire); block += place.count) {
    const LaneValues values = load_lane<Code>(wire, block, place.lane);
    if (values.unfit < wire.count) {
      atomicMin(reinterpret_cast<unsigned long long*>(global(wire.unfit)), values.unfit);
    }
    const uint32_t magnitude = Code::kHasScale ? __reduce_max_sync(0xffffffffu, values.magnitude) : 0;
    encode_lane<Code>(wire, block, place.lane, values, magnitude);
  }
}

template <class Code>
__global__ void __launch_bounds__(kThreadsABlock) decode_kernel(const __grid_constant__ DeviceWire wire) {
  const WarpPlace place = warp_place();
  for (uint64_t block = place.index; block < blocks_of(wire); block += place.count) {
    decode_lane<Code>(wire, block, place.lane);
  }
}

int launch(void (*kernel)(DeviceWire), DeviceWire wire, void* stream) {
  if (wire.count == 0) return cudaSuccess;
  const uint64_t wanted = (blocks_of(wire) * kLanes + kThreadsABlock - 1) / kThreadsABlock;
  const uint32_t blocks = blocks_at_most(0, kBlocksAMultiprocessor);
  void* arguments[] = {&wire};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(wanted < blocks ? uint32_t(wanted) : blocks),
                          dim3(kThreadsABlock), arguments, 0, static_cast<cudaStream_t>(stream));
}

struct Gpu {
  struct Entry {
    int (*encode)(const DeviceWire& wire, void* stream);
    int (*decode)(const DeviceWire& wire, void* stream);
  };
  template <class Code>
  static int encode(const DeviceWire& wire, void* stream) {
    return launch(encode_kernel<Code>, wire, stream);
  }
  template <class Code>
  static int decode(const DeviceWire& wire, void* stream) {
    return launch(decode_kernel<Code>, wire, stream);
  }
  template <class Code>
  static constexpr Entry of() {
    return {encode<Code>, decode<Code>};
  }
};

const Gpu::Entry& entry_of(const DeviceWire& wire) {
  static constexpr WireLanes<Gpu> kFormats = wire_lanes<Gpu>();
  return kFormats.of[wire.format];
}

}  // namespace

int gpu_wire_encode(const DeviceWire& wire, void* stream) { return entry_of(wire).encode(wire, stream); }
int gpu_wire_decode(const DeviceWire& wire, void* stream) { return entry_of(wire).decode(wire, stream); }

}  // namespace rondo
