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

#define RONDO_CHECK_CONSTANT(name, value, theirs) static_assert(name == static_cast<int>(theirs));
RONDO_DRIVER_CONSTANTS(RONDO_CHECK_CONSTANT)

#define RONDO_CHECK_PLACE(ours, our_member, theirs, their_member) \
  static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member));
static_assert(sizeof(Uuid) == sizeof(CUuuid));
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
