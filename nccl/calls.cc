// NCCL's collectives and messages.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "nccl/group.h"

namespace rondo::nccl {
namespace {

// By NCCL's numbers, which are the places.
constexpr rondo_dtype_t kDTypes[ncclNumTypes] = {RONDO_INT8,    RONDO_UINT8,    RONDO_INT32,       RONDO_UINT32,
                                                 RONDO_INT64,   RONDO_UINT64,   RONDO_FLOAT16,     RONDO_FLOAT32,
                                                 RONDO_FLOAT64, RONDO_BFLOAT16, RONDO_FLOAT8_E4M3, RONDO_FLOAT8_E5M2};
constexpr size_t kBytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr rondo_op_t kOps[ncclNumOps] = {RONDO_SUM, RONDO_PRODUCT, RONDO_MAX, RONDO_MIN, RONDO_AVG};

void check_dtype(ncclDataType_t dtype) {
  if (dtype < ncclInt8 || dtype >= ncclNumTypes) {
    refuse(ncclInvalidArgument, "data type " + std::to_string(dtype) + " is unknown");
  }
}

// The value of an IEEE 754 binary16.
double half(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const double fraction = (bits & 0x3ff) / 1024.0;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 0x1f) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15));
}

// One call, as Rondo takes it. A group runs it later, when the caller's arguments are gone: it is copied into the job.
// Counts and buffers are the program's, and are checked by Rondo when it runs. The buffers stay until the stream has
// passed the call.
struct Collective {
  rondo_call_t call = RONDO_CALL_INIT;
  rondo_options_t options = RONDO_OPTIONS_INIT;

  Collective(rondo_collective_t collective, const void* input, void* output, size_t count, ncclDataType_t dtype,
             ncclStream_t stream) {
    check_dtype(dtype);
    call.collective = collective;
    call.dtype = kDTypes[dtype];
    call.input = input;
    call.output = output;
    call.count = count;
    options.on_stream = 1;
    options.stream = stream;
  }
  // The factor is read here: the program may destroy its operation before the group ends.
  Collective& with(ncclRedOp_t op, ncclComm& comm) {
    if (op < ncclSum) refuse(ncclInvalidArgument, "operation " + std::to_string(op) + " is unknown");
    if (op < ncclNumOps) {
      call.op = kOps[op];
    } else {
      call.op = RONDO_PREMULSUM;
      options.scalar = comm.factor(op - ncclNumOps);
    }
    return *this;
  }
  Collective& with(int root) {
    call.root = root;
    return *this;
  }

  // In a stream that is captured for a graph there are no works.
  void run(ncclComm& comm) const {
    rondo_call_t with_options = call;
    with_options.options = &options;
    rondo_work_t work = nullptr;
    const rondo_result_t started = rondo_start(comm.group(), &with_options, &work);
    if (started == RONDO_UNSUPPORTED) return check(rondo_run(comm.group(), &with_options));
    check(started);
    comm.add(work);
  }
};

// The job refers to the communicator, which Started keeps while it runs.
ncclResult_t submit(ncclComm& comm, const Collective& collective) {
  return submit(Job{&comm, Job::Kind::kCollective, [&comm, collective] { collective.run(comm); }, nullptr,
                    collective.options.stream});
}

// A float of 16 bits or more; others have no premultiplied sum. The scalar lies in host memory, and need not be
// aligned.
double read_scalar(const void* scalar, ncclDataType_t dtype) {
  const auto as = [&](auto number) {
    std::memcpy(&number, scalar, sizeof number);
    return number;
  };
  switch (dtype) {
    case ncclFloat64:
      return as(double{});
    case ncclFloat32:
      return as(float{});
    case ncclBfloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(as(uint16_t{})) << 16);
    case ncclFloat16:
      return half(as(uint16_t{}));
    default:
      refuse(ncclInvalidArgument, "a premultiplied sum of data type " + std::to_string(dtype) +
                                      ": Rondo has those of floats of 16, 32 and 64 bits");
  }
}

enum class Way { kSend, kReceive };

// It is in the stream when the job has run. Tag 0: NCCL's messages have none, and match by the order of their calls.
ncclResult_t submit_message(ncclComm& comm, Way way, void* data, size_t count, ncclDataType_t dtype, int peer,
                            ncclStream_t stream) {
  check_dtype(dtype);
  return submit(Job{&comm, Job::Kind::kMessage,
                    [&comm, way, data, count, type = kDTypes[dtype], peer, stream] {
                      rondo_options_t options = RONDO_OPTIONS_INIT;
                      options.on_stream = 1;
                      options.stream = stream;
                      rondo_work_t work = nullptr;
                      check(way == Way::kSend
                                ? rondo_send_async(comm.group(), data, count, type, peer, 0, &options, &work)
                                : rondo_recv_async(comm.group(), data, count, type, peer, 0, &options, &work));
                      comm.add(work);
                    },
                    nullptr, stream});
}

}  // namespace
}  // namespace rondo::nccl

using namespace rondo::nccl;

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                           ncclComm_t comm, ncclStream_t stream) {
  return guarded("ncclAllReduce", [&] {
    return submit(there(comm), Collective(RONDO_ALL_REDUCE, input, output, count, dtype, stream).with(op, there(comm)));
  });
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t dtype, ncclRedOp_t op, int root,
                        ncclComm_t comm, ncclStream_t stream) {
  return guarded("ncclReduce", [&] {
    return submit(there(comm),
                  Collective(RONDO_REDUCE, input, output, count, dtype, stream).with(op, there(comm)).with(root));
  });
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                               ncclComm_t comm, ncclStream_t stream) {
  return guarded("ncclReduceScatter", [&] {
    return submit(there(comm),
                  Collective(RONDO_REDUCE_SCATTER, input, output, count, dtype, stream).with(op, there(comm)));
  });
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t dtype, ncclComm_t comm,
                           ncclStream_t stream) {
  return guarded("ncclAllGather", [&] {
    return submit(there(comm), Collective(RONDO_ALL_GATHER, input, output, count, dtype, stream));
  });
}

// Rondo's has one buffer, which the root only reads. The root's output is written behind it: not by a call that is
// refused.
ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t comm, ncclStream_t stream) {
  return guarded("ncclBroadcast", [&] {
    ncclComm& of = there(comm);
    const Collective broadcast = Collective(RONDO_BROADCAST, output, output, count, dtype, stream).with(root);
    return submit(Job{&of, Job::Kind::kCollective,
                      [&of, broadcast, input, output, bytes = count * kBytes[dtype], stream] {
                        int rank = 0;
                        check(rondo_rank(of.group(), &rank));
                        const bool copies = rank == broadcast.call.root && input != output && bytes > 0;
                        Collective own = broadcast;
                        if (copies) own.call.input = own.call.output = const_cast<void*>(input);
                        own.run(of);
                        if (copies) copy(output, input, bytes, stream);
                      },
                      nullptr, stream});
  });
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                       ncclStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, dtype, root, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* input, void* output, size_t count, ncclDataType_t dtype, ncclComm_t comm,
                          ncclStream_t stream) {
  return guarded("ncclAlltoAll", [&] {
    return submit(there(comm), Collective(RONDO_ALL_TO_ALL, input, output, count, dtype, stream));
  });
}

ncclResult_t ncclGather(const void* input, void* output, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                        ncclStream_t stream) {
  return guarded("ncclGather", [&] {
    return submit(there(comm), Collective(RONDO_GATHER, input, output, count, dtype, stream).with(root));
  });
}

ncclResult_t ncclScatter(const void* input, void* output, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                         ncclStream_t stream) {
  return guarded("ncclScatter", [&] {
    return submit(there(comm), Collective(RONDO_SCATTER, input, output, count, dtype, stream).with(root));
  });
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      ncclStream_t stream) {
  return guarded("ncclSend", [&] {
    return submit_message(there(comm), Way::kSend, const_cast<void*>(data), count, dtype, peer, stream);
  });
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm, ncclStream_t stream) {
  return guarded("ncclRecv", [&] {
    // Rondo's would take a message of any rank.
    if (peer < 0) refuse(ncclInvalidArgument, "the peer is " + std::to_string(peer));
    return submit_message(there(comm), Way::kReceive, data, count, dtype, peer, stream);
  });
}

ncclResult_t ncclGroupStart() {
  start_group();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return guarded("ncclGroupEnd", [] { return end_group(); });
}

#define RONDO_NCCL_REFUSE(name)                                                                                        \
  extern "C" RONDO_NCCL ncclResult_t name() {                                                                          \
    return guarded(                                                                                                    \
        #name, []() -> ncclResult_t { refuse(ncclInvalidUsage, "Rondo does not have this function (docs/gpu.md)"); }); \
  }
RONDO_NCCL_UNSUPPORTED(RONDO_NCCL_REFUSE)
#undef RONDO_NCCL_REFUSE

// The operation is a number of this communicator, and of no other.
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t dtype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    if (op == nullptr || scalar == nullptr) refuse(ncclInvalidArgument, "op or scalar is NULL");
    if (residence != ncclScalarHostImmediate) {
      refuse(ncclInvalidUsage, "the scalar lies in device memory: Rondo takes it from the host, when the call is made");
    }
    *op = static_cast<ncclRedOp_t>(there(comm).add_factor(read_scalar(scalar, dtype)) + ncclNumOps);
    return ncclSuccess;
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded("ncclRedOpDestroy", [&] {
    there(comm).drop_factor(op - ncclNumOps);
    return ncclSuccess;
  });
}
