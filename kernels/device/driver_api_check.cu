// driver_api.h is what cuda.h says: this compiles.
#include "kernels/device/driver_api.h"

#include <cudaTypedefs.h>

#include <algorithm>
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

// clang-format off
constexpr int kOurs[] = {
    kInvalidValue, kOutOfMemory, kNotInitialized, kNoDevice, kInvalidDevice, kInvalidImage, kInvalidContext,
    kPeerAccessUnsupported, kOperatingSystem, kInvalidHandle, kNotFound, kNotReady, kIllegalAddress,
    kPeerAccessAlreadyEnabled, kHostMemoryAlreadyRegistered, kHostMemoryNotRegistered, kNotSupported,
    kCaptureUnsupported, kCaptureInvalidated, kCaptureImplicit, kMaxPitch, kMultiprocessorCount, kUnifiedAddressing,
    kComputeCapabilityMajor, kComputeCapabilityMinor, kHandleTypePosixFileDescriptor, kMpsEnabled, kMemoryType, kIsManaged,
    kDeviceOrdinal, kMemoryDevice, kMemoryUnified, kCaptureGlobal, kCaptureThreadLocal, kCaptureRelaxed,
    kLocationDevice, kAllocationPinned, kPosixFileDescriptor, kGranularityRecommended, kReadWrite,
    kStreamNonBlocking, kEventDisableTiming, kLazyEnablePeerAccess, kRegisterPortable, kRegisterDeviceMap,
    kWaitValue32, kWaitGreaterOrEqual};
constexpr int kTheirs[] = {
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NO_DEVICE,
    CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_READY, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CU_DEVICE_ATTRIBUTE_MAX_PITCH, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED, CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING,
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP,
    CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_GEQ};
// clang-format on
static_assert(std::ranges::equal(kOurs, kTheirs));

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

}  // namespace
}  // namespace rondo::cuda
