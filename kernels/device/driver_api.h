#pragma once

#include <cstddef>
#include <cstdint>

// CUDA's driver interface, as much of it as is used: libcuda.so.1's functions and their types, declared here so that a
// tree without CUDA's headers builds the same code. tests/kernels/driver_api_check.cu compares it with cuda.h where
// there is one. Names are the driver's, without "cu" and "CU_"; NVIDIA's "CUDA Driver API" says what they do.
namespace rondo::cuda {

using Result = int;
using Attribute = int;
using PointerAttribute = int;
using CaptureMode = int;
using Device = int;
using Context = struct ContextOpaque*;
using Stream = void*;  // nullptr, and kStreamLegacy: the legacy one of the current context
using Event = struct EventOpaque*;
using Module = struct ModuleOpaque*;
using Function = struct FunctionOpaque*;
using Graph = struct GraphOpaque*;
using UserObject = struct UserObjectOpaque*;
using Pointer = unsigned long long;
using Allocation = unsigned long long;
using HostFunction = void (*)(void* argument);

// X(name, value, name in cuda.h): results, attributes of devices and of pointers, and flags of functions.
#define RONDO_DRIVER_CONSTANTS(X)                                                                         \
  X(kSuccess, 0, CUDA_SUCCESS)                                                                            \
  X(kInvalidValue, 1, CUDA_ERROR_INVALID_VALUE)                                                           \
  X(kOutOfMemory, 2, CUDA_ERROR_OUT_OF_MEMORY)                                                            \
  X(kNotInitialized, 3, CUDA_ERROR_NOT_INITIALIZED)                                                       \
  X(kNoDevice, 100, CUDA_ERROR_NO_DEVICE)                                                                 \
  X(kInvalidDevice, 101, CUDA_ERROR_INVALID_DEVICE)                                                       \
  X(kInvalidImage, 200, CUDA_ERROR_INVALID_IMAGE)                                                         \
  X(kInvalidContext, 201, CUDA_ERROR_INVALID_CONTEXT)                                                     \
  X(kInvalidHandle, 400, CUDA_ERROR_INVALID_HANDLE)                                                       \
  X(kNotFound, 500, CUDA_ERROR_NOT_FOUND)                                                                 \
  X(kNotReady, 600, CUDA_ERROR_NOT_READY)                                                                 \
  X(kIllegalAddress, 700, CUDA_ERROR_ILLEGAL_ADDRESS)                                                     \
  X(kHostMemoryAlreadyRegistered, 712, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)                         \
  X(kHostMemoryNotRegistered, 713, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)                                 \
  X(kNotSupported, 801, CUDA_ERROR_NOT_SUPPORTED)                                                         \
  X(kCaptureUnsupported, 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)                                      \
  X(kCaptureInvalidated, 901, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)                                      \
  X(kCaptureImplicit, 906, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)                                            \
  X(kMaxPitch, 11, CU_DEVICE_ATTRIBUTE_MAX_PITCH)                                                         \
  X(kMultiprocessorCount, 16, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)                                   \
  X(kComputeCapabilityMajor, 75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)                            \
  X(kComputeCapabilityMinor, 76, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)                            \
  X(kHandleTypePosixFileDescriptor, 103, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) \
  X(kMpsEnabled, 133, CU_DEVICE_ATTRIBUTE_MPS_ENABLED)                                                    \
  X(kMemoryType, 2, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)                                                     \
  X(kIsManaged, 8, CU_POINTER_ATTRIBUTE_IS_MANAGED)                                                       \
  X(kDeviceOrdinal, 9, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)                                               \
  X(kMemoryDevice, 2, CU_MEMORYTYPE_DEVICE)                                                               \
  X(kMemoryUnified, 4, CU_MEMORYTYPE_UNIFIED)                                                             \
  X(kCaptureGlobal, 0, CU_STREAM_CAPTURE_MODE_GLOBAL)                                                     \
  X(kCaptureThreadLocal, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)                                          \
  X(kCaptureRelaxed, 2, CU_STREAM_CAPTURE_MODE_RELAXED)                                                   \
  X(kLocationDevice, 1, CU_MEM_LOCATION_TYPE_DEVICE)                                                      \
  X(kAllocationPinned, 1, CU_MEM_ALLOCATION_TYPE_PINNED)                                                  \
  X(kPosixFileDescriptor, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)                                    \
  X(kGranularityRecommended, 1, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)                                     \
  X(kReadWrite, 3, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)                                                    \
  X(kStreamNonBlocking, 1, CU_STREAM_NON_BLOCKING)                                                        \
  X(kNoDestructorSync, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)                                              \
  X(kGraphMove, 1, CU_GRAPH_USER_OBJECT_MOVE)                                                             \
  X(kEventDisableTiming, 2, CU_EVENT_DISABLE_TIMING)                                                      \
  X(kRegisterPortable, 1, CU_MEMHOSTREGISTER_PORTABLE)                                                    \
  X(kRegisterDeviceMap, 2, CU_MEMHOSTREGISTER_DEVICEMAP)                                                  \
  X(kWaitValue32, 1, CU_STREAM_MEM_OP_WAIT_VALUE_32)                                                      \
  X(kWaitGreaterOrEqual, 0, CU_STREAM_WAIT_VALUE_GEQ)
enum : int {
#define RONDO_DRIVER_CONSTANT(name, value, theirs) name = value,
  RONDO_DRIVER_CONSTANTS(RONDO_DRIVER_CONSTANT)
#undef RONDO_DRIVER_CONSTANT
};
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
// An operation of StreamBatchMemOp: here only a wait for a word.
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
  X(2000, StreamCreate, (Stream * stream, unsigned flags))                                                         \
  X(4000, StreamDestroy, (Stream stream))                                                                          \
  X(2000, StreamQuery, (Stream stream))                                                                            \
  X(2000, StreamSynchronize, (Stream stream))                                                                      \
  X(9020, StreamGetCtx, (Stream stream, Context * context))                                                        \
  X(12000, StreamGetId, (Stream stream, unsigned long long* id))                                                   \
  X(12030, StreamGetCaptureInfo,                                                                                   \
    (Stream stream, int* status, uint64_t* id, Graph* graph, const void** dependencies, const void** edges,        \
     size_t* count))                                                                                               \
  X(11030, UserObjectCreate,                                                                                       \
    (UserObject * object, void* data, HostFunction destroy, unsigned references, unsigned flags))                  \
  X(11030, UserObjectRelease, (UserObject object, unsigned references))                                            \
  X(11030, GraphRetainUserObject, (Graph graph, UserObject object, unsigned references, unsigned flags))           \
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
