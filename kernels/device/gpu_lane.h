// A lane of a call (call_lane.h) as a block of a GPU.
#pragma once

#include <utility>

#include "kernels/device/call_lane.h"
#include "kernels/device/fold_rows.h"

namespace rondo {
namespace {

constexpr int kSharing = 8;  // dtypes below it, by pairs: kernel_of()
static_assert(kernel_of(kSharing - 1) == kSharing - 2 && kernel_of(kSharing) == kSharing);

template <int kDType, int kFold>
__device__ __forceinline__ void run_if(const Pass& pass, ThreadPlace thread) {
  constexpr ThreadFold kRun = kThreadFolds.of[kDType].folds[kFold];
  constexpr ThreadFold kOther = kDType < kSharing ? kThreadFolds.of[kDType + 1].folds[kFold] : nullptr;
  // Loaded each time, so that no register is taken for it while a fold runs.
  if (*static_cast<const volatile uint8_t*>(&pass.fold.fold) != kFold) return;
  if constexpr (kOther != nullptr && kOther != kRun) {
    if (pass.fold.dtype != kDType) return kOther(pass, thread);
  }
  if constexpr (kRun != nullptr) kRun(pass, thread);
}
template <int kDType, int... kFold>
__device__ __forceinline__ void run_one_of(const Pass& pass, ThreadPlace thread, std::integer_sequence<int, kFold...>) {
  (run_if<kDType, kFold>(pass, thread), ...);
}

template <int kDType>
constexpr uint64_t kElementBytes = dtype_bytes(DType(kDType));

// The thread of a block. Words by the instructions that the protocol needs: PTX ISA, "Memory Consistency Model".
template <int kDType>
struct GpuLane {
  static constexpr uint32_t kBetweenClocks = kLooksBetweenClocks;
  static constexpr uint64_t kBetweenStopsNs = kNsBetweenStops;
  __device__ __forceinline__ ThreadPlace thread() const { return {threadIdx.x, kThreadsABlock}; }
  // Here and below: asked for where it is used, so that no register is taken for it while a pass runs.
  __device__ __forceinline__ uint32_t& step() const {
    __shared__ uint32_t steps[kThreadsABlock];
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return steps[thread];
  }
  __device__ __forceinline__ uint32_t lane() const {
    uint32_t block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
  }
  __device__ __forceinline__ uint32_t lanes() const { return gridDim.x; }
  __device__ __forceinline__ uint64_t element_bytes() const { return kElementBytes<kDType>; }
  __device__ __forceinline__ bool any(bool it) const { return __syncthreads_or(it ? 1 : 0) != 0; }
  __device__ __forceinline__ uint32_t load_acquire(const uint32_t* word) const {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ __forceinline__ uint32_t load_relaxed(const uint32_t* word) const {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ __forceinline__ void store_relaxed(uint32_t* word, uint32_t value) const {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
  }
  __device__ __forceinline__ void store_release(uint32_t* word, uint32_t value) const {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
  }
  __device__ __forceinline__ void store_started(uint32_t* word, uint32_t value) const {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1; fence.sc.sys;" ::"l"(word), "r"(value) : "memory");
  }
  __device__ __forceinline__ uint64_t load_word(const uint64_t* word) const {
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ __forceinline__ void store_word(uint64_t* word, uint64_t value) const {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ __forceinline__ uint32_t load_data(const Byte* from, uint64_t left) const { return data_at(from, left); }
  __device__ __forceinline__ void store_data(Byte* to, uint32_t data, uint64_t left) const { put_data(to, data, left); }
  template <class T>
  __device__ __forceinline__ T* reach(T* memory, uint64_t) const {
    return memory;
  }
  __device__ __forceinline__ bool claim(uint32_t* word) const {
    uint32_t before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(before) : "l"(word) : "memory");
    return before == 0;
  }
  __device__ __forceinline__ uint32_t add_left(uint32_t* word) const {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(word) : "memory");
    return before;
  }
  __device__ __forceinline__ uint64_t now() const {
    uint64_t nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
  }
  __device__ __forceinline__ void pause() const {}
  __device__ __forceinline__ void run(const Pass& pass) const {
    if (pass.fold.fold == kCopies) return copy_thread(pass, thread());
    run_one_of<kDType>(pass, thread(), std::make_integer_sequence<int, kFolds>{});
  }
};

}  // namespace
}  // namespace rondo
