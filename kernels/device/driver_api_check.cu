// driver_api.h is what cuda.h says: this compiles.
#include "kernels/device/driver_api.h"

#include <cudaTypedefs.h>

#include <type_traits>

namespace rondo::cuda {
namespace {

// Passed alike: pointers, and numbers of one size; structs of one size by value.
template <class Ours, class Theirs>
constexpr bool kAlike = sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class... Ours, class... Theirs>
struct SameCall<Result (*)(Ours...), CUresult (*)(Theirs...)>
    : std::bool_constant<(sizeof...(Ours) == sizeof...(Theirs))> {
  static_assert((kAlike<Ours, Theirs> && ...));
};

#define RONDO_CHECK_FUNCTION(version, name, parameters) \
  static_assert(SameCall<Result(*) parameters, PFN_cu##name##_v##version>::value);
RONDO_DRIVER_FUNCTIONS(RONDO_CHECK_FUNCTION)
static_assert(SameCall<GetProcAddress, PFN_cuGetProcAddress_v12000>::value);

#define RONDO_CHECK_NUMBER(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs));
RONDO_CHECK_NUMBER(kInvalidValue, CUDA_ERROR_INVALID_VALUE)
RONDO_CHECK_NUMBER(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY)
RONDO_CHECK_NUMBER(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED)
RONDO_CHECK_NUMBER(kNoDevice, CUDA_ERROR_NO_DEVICE)
RONDO_CHECK_NUMBER(kInvalidDevice, CUDA_ERROR_INVALID_DEVICE)
RONDO_CHECK_NUMBER(kInvalidImage, CUDA_ERROR_INVALID_IMAGE)
RONDO_CHECK_NUMBER(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT)
RONDO_CHECK_NUMBER(kPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
RONDO_CHECK_NUMBER(kOperatingSystem, CUDA_ERROR_OPERATING_SYSTEM)
RONDO_CHECK_NUMBER(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE)
RONDO_CHECK_NUMBER(kNotFound, CUDA_ERROR_NOT_FOUND)
RONDO_CHECK_NUMBER(kNotReady, CUDA_ERROR_NOT_READY)
RONDO_CHECK_NUMBER(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS)
RONDO_CHECK_NUMBER(kPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
RONDO_CHECK_NUMBER(kHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
RONDO_CHECK_NUMBER(kHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
RONDO_CHECK_NUMBER(kNotSupported, CUDA_ERROR_NOT_SUPPORTED)
RONDO_CHECK_NUMBER(kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
RONDO_CHECK_NUMBER(kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
RONDO_CHECK_NUMBER(kCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
RONDO_CHECK_NUMBER(kMaxPitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH)
RONDO_CHECK_NUMBER(kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
RONDO_CHECK_NUMBER(kUnifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)
RONDO_CHECK_NUMBER(kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
RONDO_CHECK_NUMBER(kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
RONDO_CHECK_NUMBER(kHandleTypePosixFileDescriptor, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
RONDO_CHECK_NUMBER(kMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
RONDO_CHECK_NUMBER(kIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED)
RONDO_CHECK_NUMBER(kDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
RONDO_CHECK_NUMBER(kMemoryDevice, CU_MEMORYTYPE_DEVICE)
RONDO_CHECK_NUMBER(kMemoryUnified, CU_MEMORYTYPE_UNIFIED)
RONDO_CHECK_NUMBER(kCaptureGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL)
RONDO_CHECK_NUMBER(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
RONDO_CHECK_NUMBER(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED)
RONDO_CHECK_NUMBER(kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE)
RONDO_CHECK_NUMBER(kAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED)
RONDO_CHECK_NUMBER(kPosixFileDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
RONDO_CHECK_NUMBER(kGranularityRecommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
RONDO_CHECK_NUMBER(kReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
RONDO_CHECK_NUMBER(kStreamNonBlocking, CU_STREAM_NON_BLOCKING)
RONDO_CHECK_NUMBER(kEventDisableTiming, CU_EVENT_DISABLE_TIMING)
RONDO_CHECK_NUMBER(kLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
RONDO_CHECK_NUMBER(kRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE)
RONDO_CHECK_NUMBER(kRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP)
RONDO_CHECK_NUMBER(kWaitValue32, CU_STREAM_MEM_OP_WAIT_VALUE_32)
RONDO_CHECK_NUMBER(kWriteValue32, CU_STREAM_MEM_OP_WRITE_VALUE_32)
RONDO_CHECK_NUMBER(kWaitGreaterOrEqual, CU_STREAM_WAIT_VALUE_GEQ)

#define RONDO_CHECK_PLACE(ours, our_member, theirs, their_member) \
  static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member));
static_assert(sizeof(Uuid) == sizeof(CUuuid) && sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp) && sizeof(Access) == sizeof(CUmemAccessDesc));
RONDO_CHECK_PLACE(AllocationProperties, handle_types, CUmemAllocationProp, requestedHandleTypes)
RONDO_CHECK_PLACE(AllocationProperties, location.id, CUmemAllocationProp, location.id)
RONDO_CHECK_PLACE(Access, location.id, CUmemAccessDesc, location.id)
RONDO_CHECK_PLACE(Access, flags, CUmemAccessDesc, flags)
static_assert(sizeof(Copy2D) == sizeof(CUDA_MEMCPY2D));
RONDO_CHECK_PLACE(Copy2D, from.type, CUDA_MEMCPY2D, srcMemoryType)
RONDO_CHECK_PLACE(Copy2D, from.device, CUDA_MEMCPY2D, srcDevice)
RONDO_CHECK_PLACE(Copy2D, from.pitch, CUDA_MEMCPY2D, srcPitch)
RONDO_CHECK_PLACE(Copy2D, to.type, CUDA_MEMCPY2D, dstMemoryType)
RONDO_CHECK_PLACE(Copy2D, to.device, CUDA_MEMCPY2D, dstDevice)
RONDO_CHECK_PLACE(Copy2D, to.pitch, CUDA_MEMCPY2D, dstPitch)
RONDO_CHECK_PLACE(Copy2D, row_bytes, CUDA_MEMCPY2D, WidthInBytes)
RONDO_CHECK_PLACE(Copy2D, rows, CUDA_MEMCPY2D, Height)
static_assert(sizeof(MemoryOperation) == sizeof(CUstreamBatchMemOpParams));
RONDO_CHECK_PLACE(MemoryOperation, address, CUstreamBatchMemOpParams, waitValue.address)
RONDO_CHECK_PLACE(MemoryOperation, value, CUstreamBatchMemOpParams, waitValue.value)
RONDO_CHECK_PLACE(MemoryOperation, flags, CUstreamBatchMemOpParams, waitValue.flags)
RONDO_CHECK_PLACE(MemoryOperation, flags, CUstreamBatchMemOpParams, writeValue.flags)

}  // namespace
}  // namespace rondo::cuda
