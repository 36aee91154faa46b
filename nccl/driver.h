#pragma once

#include <cstddef>

#include "kernels/device/driver_api.h"

namespace rondo::nccl {

// What this library needs of CUDA's driver besides the engine, which has all the rest. The driver is opened at the
// first use: RONDO_DEVICE_LIBRARY, or libcuda.so.1. Each throws Failure(ncclUnhandledCudaError). Any thread.

// The calling thread's context; nullptr: it has none, and the driver takes that of device 0.
cuda::Context current_context();
// It stays the calling thread's after the call returns; InContext gives it back.
void use_context(cuda::Context context);
// The calling thread's context is this one while the object lives, and then the one before; nullptr: it stays as it is.
class InContext {
 public:
  explicit InContext(cuda::Context context)
      : before_(current_context()), changed_(context != nullptr && context != before_) {
    if (changed_) use_context(context);
  }
  ~InContext();
  InContext(const InContext&) = delete;

 private:
  const cuda::Context before_;
  const bool changed_;
};
// It is retained and never released: CUDA's runtime shares it, and keeps it to the end of the process.
cuda::Context primary_context(int device);
// 0 without a context, which is what CUDA's runtime takes.
int current_device();

// Memory of the current device. A thread without a context gets that of device 0.
void* allocate(size_t bytes);
void release(void* memory);
// In the stream, whose device is the current one. It returns at once; both buffers stay until the stream has passed it.
void copy(void* to, const void* from, size_t bytes, cuda::Stream stream);

}  // namespace rondo::nccl
