#include "nccl/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "nccl/failure.h"

namespace rondo::nccl {
namespace {

// X(version of CUDA that brought this form of it, name without "cu"), as in driver_api.h.
#define RONDO_NCCL_FUNCTIONS(X)   \
  X(2000, Init)                   \
  X(6000, GetErrorString)         \
  X(7000, DevicePrimaryCtxRetain) \
  X(4000, CtxSetCurrent)          \
  X(4000, CtxGetCurrent)          \
  X(2000, CtxGetDevice)           \
  X(3020, MemAlloc)               \
  X(3020, MemFree)                \
  X(4000, MemcpyAsync)

// Loaded at run time: the library must load where there is no GPU. cuGetProcAddress gives the form of a function that
// the named version of CUDA has. Nothing of it changes once it is made, so threads share it without a lock.
struct Driver {
#define RONDO_NCCL_MEMBER(version, name) decltype(cuda::DriverApi::name) name = nullptr;
  RONDO_NCCL_FUNCTIONS(RONDO_NCCL_MEMBER)
#undef RONDO_NCCL_MEMBER

  Driver() {
    const char* const asked = std::getenv("RONDO_DEVICE_LIBRARY");
    const char* const file = asked == nullptr || *asked == 0 ? "libcuda.so.1" : asked;
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) refuse(ncclUnhandledCudaError, std::string("no GPU can be used: ") + dlerror());
    const auto find = reinterpret_cast<cuda::GetProcAddress>(dlsym(library, cuda::kGetProcAddress));
    const auto get = [&](const char* name, int version) {
      void* function = nullptr;
      int found = 0;
      if (find == nullptr || find(name, &function, version, 0, &found) != 0 || function == nullptr) {
        refuse(ncclUnhandledCudaError, std::string(file) + " has no " + name + ": it is no driver of CUDA 12 or newer");
      }
      return function;
    };
#define RONDO_NCCL_FIND(version, name) name = reinterpret_cast<decltype(name)>(get("cu" #name, version));
    RONDO_NCCL_FUNCTIONS(RONDO_NCCL_FIND)
#undef RONDO_NCCL_FIND
    check(Init(0), "starting the driver");
  }

  void check(cuda::Result result, const char* what) const {
    if (result == cuda::kSuccess) return;
    const char* text = nullptr;
    if (GetErrorString(result, &text) != cuda::kSuccess || text == nullptr) text = "unknown error";
    refuse(ncclUnhandledCudaError,
           std::string(what) + ": " + text + " (the driver's error " + std::to_string(result) + ")");
  }
};

// Throws while there is none; the next call looks again.
const Driver& driver() {
  static const auto* const opened = new Driver;  // never freed: other threads may run at exit
  return *opened;
}

cuda::Pointer at(const void* memory) { return reinterpret_cast<cuda::Pointer>(memory); }

}  // namespace

cuda::Context current_context() {
  cuda::Context context = nullptr;
  driver().check(driver().CtxGetCurrent(&context), "asking for the current context");
  return context;
}

void use_context(cuda::Context context) { driver().check(driver().CtxSetCurrent(context), "setting the context"); }

// A failure is not reported: a destructor has nobody to tell.
InContext::~InContext() {
  if (changed_) driver().CtxSetCurrent(before_);
}

cuda::Context primary_context(int device) {
  cuda::Context context = nullptr;
  driver().check(driver().DevicePrimaryCtxRetain(&context, device),
                 ("the context of device " + std::to_string(device)).c_str());
  return context;
}

int current_device() {
  if (current_context() == nullptr) return 0;
  cuda::Device device = 0;
  driver().check(driver().CtxGetDevice(&device), "asking for the current device");
  return device;
}

void* allocate(size_t bytes) {
  if (current_context() == nullptr) use_context(primary_context(0));
  cuda::Pointer memory = 0;
  driver().check(driver().MemAlloc(&memory, bytes), ("allocating " + std::to_string(bytes) + " bytes").c_str());
  return reinterpret_cast<void*>(memory);
}

void release(void* memory) {
  if (memory != nullptr) driver().check(driver().MemFree(at(memory)), "freeing memory");
}

void copy(void* to, const void* from, size_t bytes, cuda::Stream stream) {
  driver().check(driver().MemcpyAsync(at(to), at(from), bytes, stream), "copying the root's input to its output");
}

}  // namespace rondo::nccl
