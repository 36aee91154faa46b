// Communicator's collectives: each fills in a CollectiveCall, which run() and start() take.
#include "rondo/communicator.h"

#include "ring/engine/call/collective_call.h"

namespace rondo {
namespace {

CollectiveCall even(Collective collective, const void* input, void* output, uint64_t count, DType dtype,
                    const CallOptions& options, Op op = Op::kSum, int root = -1) {
  return {.collective = collective,
          .input = input,
          .output = output,
          .count = count,
          .dtype = dtype,
          .op = op,
          .root = root,
          .options = options};
}

}  // namespace

void Communicator::all_reduce(const void* input, void* output, uint64_t count, DType dtype, Op op,
                              const CallOptions& options) {
  run(even(Collective::kAllReduce, input, output, count, dtype, options, op));
}
Work Communicator::all_reduce_async(const void* input, void* output, uint64_t count, DType dtype, Op op,
                                    const CallOptions& options) {
  return start(even(Collective::kAllReduce, input, output, count, dtype, options, op));
}

void Communicator::reduce(const void* input, void* output, uint64_t count, DType dtype, Op op, int root,
                          const CallOptions& options) {
  run(even(Collective::kReduce, input, output, count, dtype, options, op, root));
}
Work Communicator::reduce_async(const void* input, void* output, uint64_t count, DType dtype, Op op, int root,
                                const CallOptions& options) {
  return start(even(Collective::kReduce, input, output, count, dtype, options, op, root));
}

void Communicator::broadcast(void* buffer, uint64_t count, DType dtype, int root, const CallOptions& options) {
  run(even(Collective::kBroadcast, buffer, buffer, count, dtype, options, Op::kSum, root));
}
Work Communicator::broadcast_async(void* buffer, uint64_t count, DType dtype, int root, const CallOptions& options) {
  return start(even(Collective::kBroadcast, buffer, buffer, count, dtype, options, Op::kSum, root));
}

void Communicator::all_gather(const void* input, void* output, uint64_t count, DType dtype,
                              const CallOptions& options) {
  run(even(Collective::kAllGather, input, output, count, dtype, options));
}
Work Communicator::all_gather_async(const void* input, void* output, uint64_t count, DType dtype,
                                    const CallOptions& options) {
  return start(even(Collective::kAllGather, input, output, count, dtype, options));
}

void Communicator::reduce_scatter(const void* input, void* output, uint64_t count, DType dtype, Op op,
                                  const CallOptions& options) {
  run(even(Collective::kReduceScatter, input, output, count, dtype, options, op));
}
Work Communicator::reduce_scatter_async(const void* input, void* output, uint64_t count, DType dtype, Op op,
                                        const CallOptions& options) {
  return start(even(Collective::kReduceScatter, input, output, count, dtype, options, op));
}

void Communicator::gather(const void* input, void* output, uint64_t count, DType dtype, int root,
                          const CallOptions& options) {
  run(even(Collective::kGather, input, output, count, dtype, options, Op::kSum, root));
}
Work Communicator::gather_async(const void* input, void* output, uint64_t count, DType dtype, int root,
                                const CallOptions& options) {
  return start(even(Collective::kGather, input, output, count, dtype, options, Op::kSum, root));
}

void Communicator::scatter(const void* input, void* output, uint64_t count, DType dtype, int root,
                           const CallOptions& options) {
  run(even(Collective::kScatter, input, output, count, dtype, options, Op::kSum, root));
}
Work Communicator::scatter_async(const void* input, void* output, uint64_t count, DType dtype, int root,
                                 const CallOptions& options) {
  return start(even(Collective::kScatter, input, output, count, dtype, options, Op::kSum, root));
}

void Communicator::all_to_all(const void* input, void* output, uint64_t count, DType dtype,
                              const CallOptions& options) {
  run(even(Collective::kAllToAll, input, output, count, dtype, options));
}
Work Communicator::all_to_all_async(const void* input, void* output, uint64_t count, DType dtype,
                                    const CallOptions& options) {
  return start(even(Collective::kAllToAll, input, output, count, dtype, options));
}

void Communicator::barrier(const CallOptions& options) {
  run(even(Collective::kBarrier, nullptr, nullptr, 0, DType::kUint8, options));
}
Work Communicator::barrier_async(const CallOptions& options) {
  return start(even(Collective::kBarrier, nullptr, nullptr, 0, DType::kUint8, options));
}

void Communicator::all_gather_v(const void* input, void* output, Counts counts, Counts displacements, DType dtype,
                                const CallOptions& options) {
  run(uneven_call(even(Collective::kAllGather, nullptr, nullptr, 0, dtype, options), {input},
                  {output, counts, displacements}));
}
Work Communicator::all_gather_v_async(const void* input, void* output, Counts counts, Counts displacements, DType dtype,
                                      const CallOptions& options) {
  return start(uneven_call(even(Collective::kAllGather, nullptr, nullptr, 0, dtype, options), {input},
                           {output, counts, displacements}));
}

void Communicator::reduce_scatter_v(const void* input, void* output, Counts counts, DType dtype, Op op,
                                    const CallOptions& options) {
  run(uneven_call(even(Collective::kReduceScatter, nullptr, nullptr, 0, dtype, options, op), {input, counts},
                  {output}));
}
Work Communicator::reduce_scatter_v_async(const void* input, void* output, Counts counts, DType dtype, Op op,
                                          const CallOptions& options) {
  return start(uneven_call(even(Collective::kReduceScatter, nullptr, nullptr, 0, dtype, options, op), {input, counts},
                           {output}));
}

void Communicator::gather_v(const void* input, uint64_t count, void* output, Counts counts, Counts displacements,
                            DType dtype, int root, const CallOptions& options) {
  run(uneven_call(even(Collective::kGather, nullptr, nullptr, count, dtype, options, Op::kSum, root), {input},
                  {output, counts, displacements}));
}
Work Communicator::gather_v_async(const void* input, uint64_t count, void* output, Counts counts, Counts displacements,
                                  DType dtype, int root, const CallOptions& options) {
  return start(uneven_call(even(Collective::kGather, nullptr, nullptr, count, dtype, options, Op::kSum, root), {input},
                           {output, counts, displacements}));
}

void Communicator::scatter_v(const void* input, Counts counts, Counts displacements, void* output, uint64_t count,
                             DType dtype, int root, const CallOptions& options) {
  run(uneven_call(even(Collective::kScatter, nullptr, nullptr, count, dtype, options, Op::kSum, root),
                  {input, counts, displacements}, {output}));
}
Work Communicator::scatter_v_async(const void* input, Counts counts, Counts displacements, void* output, uint64_t count,
                                   DType dtype, int root, const CallOptions& options) {
  return start(uneven_call(even(Collective::kScatter, nullptr, nullptr, count, dtype, options, Op::kSum, root),
                           {input, counts, displacements}, {output}));
}

void Communicator::all_to_all_v(const void* input, Counts send_counts, Counts send_displacements, void* output,
                                Counts recv_counts, Counts recv_displacements, DType dtype,
                                const CallOptions& options) {
  run(uneven_call(even(Collective::kAllToAll, nullptr, nullptr, 0, dtype, options),
                  {input, send_counts, send_displacements}, {output, recv_counts, recv_displacements}));
}
Work Communicator::all_to_all_v_async(const void* input, Counts send_counts, Counts send_displacements, void* output,
                                      Counts recv_counts, Counts recv_displacements, DType dtype,
                                      const CallOptions& options) {
  return start(uneven_call(even(Collective::kAllToAll, nullptr, nullptr, 0, dtype, options),
                           {input, send_counts, send_displacements}, {output, recv_counts, recv_displacements}));
}

}  // namespace rondo
