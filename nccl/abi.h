#pragma once

#include <climits>
#include <cstddef>

// NCCL's interface: types, values and functions of NCCL 2.27's nccl.h, but ncclGroupSimulateEnd(). Four functions are
// newer: ncclAlltoAll(), ncclGather(), ncclScatter(), ncclCommRevoke().
extern "C" {

// Programs have this compiled in: values and layouts are NVIDIA's and never change.
using ncclComm_t = struct ncclComm*;
using ncclWindow_t = struct ncclWindow*;
// A cudaStream_t; nullptr: the legacy stream.
using ncclStream_t = void*;

struct ncclUniqueId {
  char internal[128];
};

// ncclInProgress is of communicators with blocking=0 alone: ncclCommGetAsyncError() then says when the call is over.
enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
};

// From ncclNumOps on: operations of ncclRedOpCreatePreMulSum().
enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4, ncclNumOps = 5 };

enum ncclScalarResidence_t : int { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

// A structure of an older version is shorter: `size` says where it ends.
struct ncclConfig_t {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
};

#define RONDO_NCCL __attribute__((visibility("default")))

RONDO_NCCL ncclResult_t ncclGetVersion(int* version);
RONDO_NCCL const char* ncclGetErrorString(ncclResult_t result);
// The text is the calling thread's until its next call of this.
RONDO_NCCL const char* ncclGetLastError(ncclComm_t comm);
RONDO_NCCL void ncclResetDebugInit();

RONDO_NCCL ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
RONDO_NCCL ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
RONDO_NCCL ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                               ncclConfig_t* config);
RONDO_NCCL ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count, ncclUniqueId* ids,
                                                 ncclConfig_t* config);
RONDO_NCCL ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices);
RONDO_NCCL ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config);
RONDO_NCCL ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made,
                                       ncclConfig_t* config, int flags);
RONDO_NCCL ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
// ncclCommDestroy() and ncclCommAbort() free the communicator, and wait for threads of the library that use it.
RONDO_NCCL ncclResult_t ncclCommFinalize(ncclComm_t comm);
RONDO_NCCL ncclResult_t ncclCommDestroy(ncclComm_t comm);
RONDO_NCCL ncclResult_t ncclCommAbort(ncclComm_t comm);

RONDO_NCCL ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
RONDO_NCCL ncclResult_t ncclCommCount(ncclComm_t comm, int* count);
RONDO_NCCL ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device);
RONDO_NCCL ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank);

// Memory of the calling thread's device. Buffers need not come from here, nor be registered.
RONDO_NCCL ncclResult_t ncclMemAlloc(void** memory, size_t bytes);
RONDO_NCCL ncclResult_t ncclMemFree(void* memory);
RONDO_NCCL ncclResult_t ncclCommRegister(ncclComm_t comm, void* buffer, size_t bytes, void** handle);
RONDO_NCCL ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
RONDO_NCCL ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window,
                                               int flags);
RONDO_NCCL ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);

RONDO_NCCL ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t dtype,
                                                 ncclScalarResidence_t residence, ncclComm_t comm);
RONDO_NCCL ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

// Counts are elements of dtype; of all-gather, gather and all-to-all of what a rank gives to each, of reduce-scatter
// and scatter of what a rank gets.
RONDO_NCCL ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t dtype,
                                      ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                                   int root, ncclComm_t comm, ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t dtype,
                                          ncclRedOp_t op, ncclComm_t comm, ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t dtype,
                                      ncclComm_t comm, ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t dtype, int root,
                                      ncclComm_t comm, ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                                  ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclAlltoAll(const void* input, void* output, size_t count, ncclDataType_t dtype,
                                     ncclComm_t comm, ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclGather(const void* input, void* output, size_t count, ncclDataType_t dtype, int root,
                                   ncclComm_t comm, ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclScatter(const void* input, void* output, size_t count, ncclDataType_t dtype, int root,
                                    ncclComm_t comm, ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                                 ncclStream_t stream);
RONDO_NCCL ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                                 ncclStream_t stream);

RONDO_NCCL ncclResult_t ncclGroupStart();
RONDO_NCCL ncclResult_t ncclGroupEnd();
}

// Functions of 2.27 to 2.32 that programs were linked with (torch 2.14 with all of them), and that this library does
// not have: they end in ncclInvalidUsage, whatever they are given.
#define RONDO_NCCL_UNSUPPORTED(X)    \
  X(ncclGroupSimulateEnd)            \
  X(ncclCommGetUniqueId)             \
  X(ncclCommGrow)                    \
  X(ncclCommSuspend)                 \
  X(ncclCommResume)                  \
  X(ncclCommMemStats)                \
  X(ncclPutSignal)                   \
  X(ncclSignal)                      \
  X(ncclWaitSignal)                  \
  X(ncclWinGetUserPtr)               \
  X(ncclDevCommCreate)               \
  X(ncclDevCommDestroy)              \
  X(ncclGetLsaMultimemDevicePointer) \
  X(ncclGetPeerDevicePointer)
