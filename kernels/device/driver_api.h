#pragma once

#include <cstddef>
#include <cstdint>

// CUDA's driver interface, as much of it as is used: libcuda.so.1's functions and their types, declared here so that a
// tree without CUDA's headers builds the same code. driver_api_check.cu compares all of it with cuda.h where there is
// one. Names are the driver's, without "cu" and "CU_"; NVIDIA's "CUDA Driver API" says what they do.
namespace rondo::cuda {

using Result = int;
using Device = int;
using Context = struct ContextOpaque*;
using Stream = void*;  // nullptr, and kStreamLegacy: the legacy one of the current context
using Event = struct EventOpaque*;
using Module = struct ModuleOpaque*;
using Function = struct FunctionOpaque*;
using Pointer = unsigned long long;
using Allocation = unsigned long long;
using HostFunction = void (*)(void* argument);

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kPeerAccessUnsupported = 217,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureImplicit = 906
};

enum Attribute : int {
  kMaxPitch = 11,
  kMultiprocessorCount = 16,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kHandleTypePosixFileDescriptor = 103,
  kMpsEnabled = 133
};
enum PointerAttribute : int { kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9 };
enum MemoryType : int { kMemoryDevice = 2, kMemoryUnified = 4 };
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };

inline constexpr int kLocationDevice = 1, kAllocationPinned = 1, kPosixFileDescriptor = 1, kGranularityRecommended = 1;
inline constexpr int kReadWrite = 3;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2, kLazyEnablePeerAccess = 1;
inline constexpr unsigned kRegisterPortable = 1, kRegisterDeviceMap = 2;
inline constexpr int kWaitValue32 = 1;
inline constexpr unsigned kWaitGreaterOrEqual = 0;
inline constexpr uintptr_t kStreamLegacy = 1, kStreamPerThread = 2;

struct Uuid {
  uint8_t bytes[16];
};
struct Location {
  int type, id;
};
struct AllocationProperties {
  int type, handle_types;
  Location location;
  void* win32;
  uint8_t flags[8];
};
struct Access {
  Location location;
  int flags;
};
struct IpcHandle {
  char reserved[64];
};
struct Copy2DSide {
  size_t x, y;
  int type;
  const void* host;
  Pointer device;
  void* array;
  size_t pitch;
};
struct Copy2D {
  Copy2DSide from, to;
  size_t row_bytes, rows;
};
// Of StreamBatchMemOp.
struct MemoryOperation {
  int operation;
  Pointer address;
  uint64_t value;
  unsigned flags;
  uint64_t rest[2];
};

// X(version of CUDA that brought this form of it, name without "cu", parameters)
#define RONDO_DRIVER_FUNCTIONS(X)                                                                                  \
  X(2000, Init, (unsigned flags))                                                                                  \
  X(2020, DriverGetVersion, (int* version))                                                                        \
  X(6000, GetErrorString, (Result result, const char** text))                                                      \
  X(2000, DeviceGetCount, (int* count))                                                                            \
  X(2000, DeviceGetName, (char* name, int bytes, Device device))                                                   \
  X(11040, DeviceGetUuid, (Uuid * uuid, Device device))                                                            \
  X(3020, DeviceTotalMem, (size_t * bytes, Device device))                                                         \
  X(2000, DeviceGetAttribute, (int* value, Attribute attribute, Device device))                                    \
  X(7000, DevicePrimaryCtxRetain, (Context * context, Device device))                                              \
  X(4000, CtxPushCurrent, (Context context))                                                                       \
  X(4000, CtxPopCurrent, (Context * context))                                                                      \
  X(4000, CtxSetCurrent, (Context context))                                                                        \
  X(4000, CtxGetCurrent, (Context * context))                                                                      \
  X(2000, CtxGetDevice, (Device * device))                                                                         \
  X(4000, CtxEnablePeerAccess, (Context context, unsigned flags))                                                  \
  X(10010, ThreadExchangeStreamCaptureMode, (CaptureMode * mode))                                                  \
  X(2000, ModuleLoadData, (Module * module, const void* image))                                                    \
  X(2000, ModuleGetFunction, (Function * function, Module module, const char* name))                               \
  X(12040, FuncLoad, (Function function))                                                                          \
  X(4000, LaunchKernel,                                                                                            \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,     \
     unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters, void** extra))                     \
  X(3020, MemAlloc, (Pointer * memory, size_t bytes))                                                              \
  X(3020, MemFree, (Pointer memory))                                                                               \
  X(3020, MemsetD8Async, (Pointer memory, unsigned char value, size_t bytes, Stream stream))                       \
  X(4000, MemcpyAsync, (Pointer to, Pointer from, size_t bytes, Stream stream))                                    \
  X(3020, Memcpy2DAsync, (const Copy2D* copy, Stream stream))                                                      \
  X(7000, PointerGetAttributes, (unsigned count, PointerAttribute* attributes, void** data, Pointer pointer))      \
  X(6050, MemHostRegister, (void* memory, size_t bytes, unsigned flags))                                           \
  X(4000, MemHostUnregister, (void* memory))                                                                       \
  X(3020, MemHostGetDevicePointer, (Pointer * at_device, void* memory, unsigned flags))                            \
  X(10020, MemGetAllocationGranularity, (size_t * bytes, const AllocationProperties* properties, int which))       \
  X(10020, MemCreate,                                                                                              \
    (Allocation * allocation, size_t bytes, const AllocationProperties* properties, unsigned long long flags))     \
  X(10020, MemRelease, (Allocation allocation))                                                                    \
  X(10020, MemExportToShareableHandle, (void* handle, Allocation allocation, int type, unsigned long long flags))  \
  X(10020, MemImportFromShareableHandle, (Allocation * allocation, void* handle, int type))                        \
  X(10020, MemAddressReserve,                                                                                      \
    (Pointer * memory, size_t bytes, size_t alignment, Pointer wanted, unsigned long long flags))                  \
  X(10020, MemAddressFree, (Pointer memory, size_t bytes))                                                         \
  X(10020, MemMap, (Pointer memory, size_t bytes, size_t offset, Allocation allocation, unsigned long long flags)) \
  X(10020, MemUnmap, (Pointer memory, size_t bytes))                                                               \
  X(10020, MemSetAccess, (Pointer memory, size_t bytes, const Access* access, size_t count))                       \
  X(4010, IpcGetMemHandle, (IpcHandle * handle, Pointer memory))                                                   \
  X(11000, IpcOpenMemHandle, (Pointer * memory, IpcHandle handle, unsigned flags))                                 \
  X(4010, IpcCloseMemHandle, (Pointer memory))                                                                     \
  X(2000, StreamCreate, (Stream * stream, unsigned flags))                                                         \
  X(4000, StreamDestroy, (Stream stream))                                                                          \
  X(2000, StreamQuery, (Stream stream))                                                                            \
  X(2000, StreamSynchronize, (Stream stream))                                                                      \
  X(9020, StreamGetCtx, (Stream stream, Context * context))                                                        \
  X(12000, StreamGetId, (Stream stream, unsigned long long* id))                                                   \
  X(10000, StreamIsCapturing, (Stream stream, int* status))                                                        \
  X(3020, StreamWaitEvent, (Stream stream, Event event, unsigned flags))                                           \
  X(2000, EventCreate, (Event * event, unsigned flags))                                                            \
  X(4000, EventDestroy, (Event event))                                                                             \
  X(2000, EventElapsedTime, (float* milliseconds, Event first, Event second))                                      \
  X(2000, EventRecord, (Event event, Stream stream))                                                               \
  X(10000, LaunchHostFunc, (Stream stream, HostFunction function, void* argument))                                 \
  X(11070, StreamBatchMemOp, (Stream stream, unsigned count, MemoryOperation* operations, unsigned flags))

// libcuda.so.1's functions.
struct DriverApi {
#define RONDO_DRIVER_MEMBER(version, name, parameters) Result(*name) parameters;
  RONDO_DRIVER_FUNCTIONS(RONDO_DRIVER_MEMBER)
#undef RONDO_DRIVER_MEMBER
};

// By this one all others are found, by dlsym(): cuGetProcAddress of CUDA 12.
inline constexpr const char* kGetProcAddress = "cuGetProcAddress_v2";
using GetProcAddress = Result (*)(const char* name, void** function, int version, uint64_t flags, int* found);

}  // namespace rondo::cuda
