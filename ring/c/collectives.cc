#include "ring/c/arguments.h"
#include "ring/c/handles.h"
#include "ring/c/result.h"
#include "rondo/rondo.h"

using rondo::Collective;
using rondo::c::call_of;
using rondo::c::run_call;
using rondo::c::start_call;

extern "C" {

rondo_result_t rondo_all_reduce(rondo_comm_t comm, const void* input, void* output, uint64_t count, rondo_dtype_t dtype,
                                rondo_op_t op, const rondo_options_t* options) {
  return run_call(comm, [&] { return call_of(Collective::kAllReduce, input, output, count, dtype, options, op); });
}
rondo_result_t rondo_all_reduce_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                      rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options,
                                      rondo_work_t* work) {
  return start_call(comm, work,
                    [&] { return call_of(Collective::kAllReduce, input, output, count, dtype, options, op); });
}
rondo_result_t rondo_reduce(rondo_comm_t comm, const void* input, void* output, uint64_t count, rondo_dtype_t dtype,
                            rondo_op_t op, int root, const rondo_options_t* options) {
  return run_call(comm, [&] { return call_of(Collective::kReduce, input, output, count, dtype, options, op, root); });
}
rondo_result_t rondo_reduce_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                  rondo_dtype_t dtype, rondo_op_t op, int root, const rondo_options_t* options,
                                  rondo_work_t* work) {
  return start_call(comm, work,
                    [&] { return call_of(Collective::kReduce, input, output, count, dtype, options, op, root); });
}
rondo_result_t rondo_broadcast(rondo_comm_t comm, void* buffer, uint64_t count, rondo_dtype_t dtype, int root,
                               const rondo_options_t* options) {
  return run_call(
      comm, [&] { return call_of(Collective::kBroadcast, buffer, buffer, count, dtype, options, RONDO_SUM, root); });
}
rondo_result_t rondo_broadcast_async(rondo_comm_t comm, void* buffer, uint64_t count, rondo_dtype_t dtype, int root,
                                     const rondo_options_t* options, rondo_work_t* work) {
  return start_call(comm, work, [&] {
    return call_of(Collective::kBroadcast, buffer, buffer, count, dtype, options, RONDO_SUM, root);
  });
}
rondo_result_t rondo_all_gather(rondo_comm_t comm, const void* input, void* output, uint64_t count, rondo_dtype_t dtype,
                                const rondo_options_t* options) {
  return run_call(comm, [&] { return call_of(Collective::kAllGather, input, output, count, dtype, options); });
}
rondo_result_t rondo_all_gather_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                      rondo_dtype_t dtype, const rondo_options_t* options, rondo_work_t* work) {
  return start_call(comm, work, [&] { return call_of(Collective::kAllGather, input, output, count, dtype, options); });
}
rondo_result_t rondo_reduce_scatter(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                    rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options) {
  return run_call(comm, [&] { return call_of(Collective::kReduceScatter, input, output, count, dtype, options, op); });
}
rondo_result_t rondo_reduce_scatter_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                          rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options,
                                          rondo_work_t* work) {
  return start_call(comm, work,
                    [&] { return call_of(Collective::kReduceScatter, input, output, count, dtype, options, op); });
}
rondo_result_t rondo_gather(rondo_comm_t comm, const void* input, void* output, uint64_t count, rondo_dtype_t dtype,
                            int root, const rondo_options_t* options) {
  return run_call(comm,
                  [&] { return call_of(Collective::kGather, input, output, count, dtype, options, RONDO_SUM, root); });
}
rondo_result_t rondo_gather_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                  rondo_dtype_t dtype, int root, const rondo_options_t* options, rondo_work_t* work) {
  return start_call(
      comm, work, [&] { return call_of(Collective::kGather, input, output, count, dtype, options, RONDO_SUM, root); });
}
rondo_result_t rondo_scatter(rondo_comm_t comm, const void* input, void* output, uint64_t count, rondo_dtype_t dtype,
                             int root, const rondo_options_t* options) {
  return run_call(comm,
                  [&] { return call_of(Collective::kScatter, input, output, count, dtype, options, RONDO_SUM, root); });
}
rondo_result_t rondo_scatter_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                   rondo_dtype_t dtype, int root, const rondo_options_t* options, rondo_work_t* work) {
  return start_call(
      comm, work, [&] { return call_of(Collective::kScatter, input, output, count, dtype, options, RONDO_SUM, root); });
}
rondo_result_t rondo_all_to_all(rondo_comm_t comm, const void* input, void* output, uint64_t count, rondo_dtype_t dtype,
                                const rondo_options_t* options) {
  return run_call(comm, [&] { return call_of(Collective::kAllToAll, input, output, count, dtype, options); });
}
rondo_result_t rondo_all_to_all_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                      rondo_dtype_t dtype, const rondo_options_t* options, rondo_work_t* work) {
  return start_call(comm, work, [&] { return call_of(Collective::kAllToAll, input, output, count, dtype, options); });
}
rondo_result_t rondo_barrier(rondo_comm_t comm, const rondo_options_t* options) {
  return run_call(comm, [&] { return call_of(Collective::kBarrier, nullptr, nullptr, 0, RONDO_UINT8, options); });
}
rondo_result_t rondo_barrier_async(rondo_comm_t comm, const rondo_options_t* options, rondo_work_t* work) {
  return start_call(comm, work,
                    [&] { return call_of(Collective::kBarrier, nullptr, nullptr, 0, RONDO_UINT8, options); });
}

}  // extern "C"
