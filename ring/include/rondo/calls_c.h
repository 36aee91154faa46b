#ifndef RONDO_CALLS_C_H_
#define RONDO_CALLS_C_H_

/* The collectives of the C API by name: each is one rondo_call_t, which rondo_run takes, or rondo_start for the form
 * with _async. The library has them as functions, too. */

#include <rondo/rondo.h>

#ifndef RONDO_BY_NAME
#define RONDO_BY_NAME static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Fill in what the calls by name have in common. */
static inline rondo_call_t rondo_even(rondo_collective_t collective, const void* input, void* output, uint64_t count,
                                      rondo_dtype_t dtype, rondo_op_t op, int root, const rondo_options_t* options) {
  rondo_call_t call = RONDO_CALL_INIT;
  call.collective = collective;
  call.dtype = dtype;
  call.op = op;
  call.root = root;
  call.input = input;
  call.output = output;
  call.count = count;
  call.options = options;
  return call;
}
static inline rondo_call_t rondo_uneven(rondo_call_t call, const uint64_t* input_counts,
                                        const uint64_t* input_displacements, const uint64_t* output_counts,
                                        const uint64_t* output_displacements) {
  call.uneven = 1;
  call.input_counts = input_counts;
  call.output_counts = output_counts;
  call.input_displacements = input_displacements;
  call.output_displacements = output_displacements;
  return call;
}

/* output[i] = op over all ranks of input[i]; input, output: count elements. */
RONDO_BY_NAME rondo_result_t rondo_all_reduce(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                              rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_ALL_REDUCE, input, output, count, dtype, op, -1, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_all_reduce_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                                    rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options,
                                                    rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_ALL_REDUCE, input, output, count, dtype, op, -1, options);
  return rondo_start(comm, &call, work);
}

/* all_reduce with the output on the root only; elsewhere it is not touched and may be NULL. */
RONDO_BY_NAME rondo_result_t rondo_reduce(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                          rondo_dtype_t dtype, rondo_op_t op, int root,
                                          const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_REDUCE, input, output, count, dtype, op, root, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_reduce_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                                rondo_dtype_t dtype, rondo_op_t op, int root,
                                                const rondo_options_t* options, rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_REDUCE, input, output, count, dtype, op, root, options);
  return rondo_start(comm, &call, work);
}

/* output[i] = op over ranks 0 .. rank of input[i], in this order. Not RONDO_AVG. */
RONDO_BY_NAME rondo_result_t rondo_scan(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                        rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_SCAN, input, output, count, dtype, op, -1, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_scan_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                              rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options,
                                              rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_SCAN, input, output, count, dtype, op, -1, options);
  return rondo_start(comm, &call, work);
}

/* The same over ranks 0 .. rank - 1; on rank 0 the output is not touched. */
RONDO_BY_NAME rondo_result_t rondo_exscan(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                          rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_EXSCAN, input, output, count, dtype, op, -1, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_exscan_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                                rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options,
                                                rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_EXSCAN, input, output, count, dtype, op, -1, options);
  return rondo_start(comm, &call, work);
}

/* buffer: count elements, read on the root, written elsewhere. */
RONDO_BY_NAME rondo_result_t rondo_broadcast(rondo_comm_t comm, void* buffer, uint64_t count, rondo_dtype_t dtype,
                                             int root, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_BROADCAST, buffer, buffer, count, dtype, RONDO_SUM, root, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_broadcast_async(rondo_comm_t comm, void* buffer, uint64_t count, rondo_dtype_t dtype,
                                                   int root, const rondo_options_t* options, rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_BROADCAST, buffer, buffer, count, dtype, RONDO_SUM, root, options);
  return rondo_start(comm, &call, work);
}

/* input: count elements; output: size * count, rank r's input as block r. */
RONDO_BY_NAME rondo_result_t rondo_all_gather(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                              rondo_dtype_t dtype, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_ALL_GATHER, input, output, count, dtype, RONDO_SUM, -1, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_all_gather_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                                    rondo_dtype_t dtype, const rondo_options_t* options,
                                                    rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_ALL_GATHER, input, output, count, dtype, RONDO_SUM, -1, options);
  return rondo_start(comm, &call, work);
}

/* input: size * count elements; output: count elements, op over all ranks of their blocks `rank`. */
RONDO_BY_NAME rondo_result_t rondo_reduce_scatter(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                                  rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_REDUCE_SCATTER, input, output, count, dtype, op, -1, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_reduce_scatter_async(rondo_comm_t comm, const void* input, void* output,
                                                        uint64_t count, rondo_dtype_t dtype, rondo_op_t op,
                                                        const rondo_options_t* options, rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_REDUCE_SCATTER, input, output, count, dtype, op, -1, options);
  return rondo_start(comm, &call, work);
}

/* all_gather with the output on the root only; elsewhere it may be NULL. */
RONDO_BY_NAME rondo_result_t rondo_gather(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                          rondo_dtype_t dtype, int root, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_GATHER, input, output, count, dtype, RONDO_SUM, root, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_gather_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                                rondo_dtype_t dtype, int root, const rondo_options_t* options,
                                                rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_GATHER, input, output, count, dtype, RONDO_SUM, root, options);
  return rondo_start(comm, &call, work);
}

/* input: size * count elements on the root, elsewhere it may be NULL; output: count elements, block `rank` of it. */
RONDO_BY_NAME rondo_result_t rondo_scatter(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                           rondo_dtype_t dtype, int root, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_SCATTER, input, output, count, dtype, RONDO_SUM, root, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_scatter_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                                 rondo_dtype_t dtype, int root, const rondo_options_t* options,
                                                 rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_SCATTER, input, output, count, dtype, RONDO_SUM, root, options);
  return rondo_start(comm, &call, work);
}

/* input, output: size * count elements; block r of the input goes to rank r, block r of the output is rank r's. */
RONDO_BY_NAME rondo_result_t rondo_all_to_all(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                              rondo_dtype_t dtype, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_ALL_TO_ALL, input, output, count, dtype, RONDO_SUM, -1, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_all_to_all_async(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                                    rondo_dtype_t dtype, const rondo_options_t* options,
                                                    rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_ALL_TO_ALL, input, output, count, dtype, RONDO_SUM, -1, options);
  return rondo_start(comm, &call, work);
}

/* Returns when all ranks have called it. */
RONDO_BY_NAME rondo_result_t rondo_barrier(rondo_comm_t comm, const rondo_options_t* options) {
  const rondo_call_t call = rondo_even(RONDO_BARRIER, NULL, NULL, 0, RONDO_FLOAT32, RONDO_SUM, -1, options);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_barrier_async(rondo_comm_t comm, const rondo_options_t* options,
                                                 rondo_work_t* work) {
  const rondo_call_t call = rondo_even(RONDO_BARRIER, NULL, NULL, 0, RONDO_FLOAT32, RONDO_SUM, -1, options);
  return rondo_start(comm, &call, work);
}

/* ---- Collectives with uneven counts ---- */

/* counts: equal on all ranks, else RONDO_MISMATCH. input: counts[rank] elements. */
RONDO_BY_NAME rondo_result_t rondo_all_gather_v(rondo_comm_t comm, const void* input, void* output,
                                                const uint64_t* counts, const uint64_t* displacements,
                                                rondo_dtype_t dtype, const rondo_options_t* options) {
  const rondo_call_t call = rondo_uneven(rondo_even(RONDO_ALL_GATHER, input, output, 0, dtype, RONDO_SUM, -1, options),
                                         NULL, NULL, counts, displacements);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_all_gather_v_async(rondo_comm_t comm, const void* input, void* output,
                                                      const uint64_t* counts, const uint64_t* displacements,
                                                      rondo_dtype_t dtype, const rondo_options_t* options,
                                                      rondo_work_t* work) {
  const rondo_call_t call = rondo_uneven(rondo_even(RONDO_ALL_GATHER, input, output, 0, dtype, RONDO_SUM, -1, options),
                                         NULL, NULL, counts, displacements);
  return rondo_start(comm, &call, work);
}

/* counts: equal on all ranks, else RONDO_MISMATCH. output: counts[rank] elements. */
RONDO_BY_NAME rondo_result_t rondo_reduce_scatter_v(rondo_comm_t comm, const void* input, void* output,
                                                    const uint64_t* counts, rondo_dtype_t dtype, rondo_op_t op,
                                                    const rondo_options_t* options) {
  const rondo_call_t call = rondo_uneven(rondo_even(RONDO_REDUCE_SCATTER, input, output, 0, dtype, op, -1, options),
                                         counts, NULL, NULL, NULL);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_reduce_scatter_v_async(rondo_comm_t comm, const void* input, void* output,
                                                          const uint64_t* counts, rondo_dtype_t dtype, rondo_op_t op,
                                                          const rondo_options_t* options, rondo_work_t* work) {
  const rondo_call_t call = rondo_uneven(rondo_even(RONDO_REDUCE_SCATTER, input, output, 0, dtype, op, -1, options),
                                         counts, NULL, NULL, NULL);
  return rondo_start(comm, &call, work);
}

/* count: of this rank's own block. output, counts, displacements: read on the root only. The root's counts[root] and
 * count differ: RONDO_INVALID. */
RONDO_BY_NAME rondo_result_t rondo_gather_v(rondo_comm_t comm, const void* input, uint64_t count, void* output,
                                            const uint64_t* counts, const uint64_t* displacements, rondo_dtype_t dtype,
                                            int root, const rondo_options_t* options) {
  const rondo_call_t call =
      rondo_uneven(rondo_even(RONDO_GATHER, input, output, count, dtype, RONDO_SUM, root, options), NULL, NULL, counts,
                   displacements);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_gather_v_async(rondo_comm_t comm, const void* input, uint64_t count, void* output,
                                                  const uint64_t* counts, const uint64_t* displacements,
                                                  rondo_dtype_t dtype, int root, const rondo_options_t* options,
                                                  rondo_work_t* work) {
  const rondo_call_t call =
      rondo_uneven(rondo_even(RONDO_GATHER, input, output, count, dtype, RONDO_SUM, root, options), NULL, NULL, counts,
                   displacements);
  return rondo_start(comm, &call, work);
}

/* gather_v the other way: input, counts and displacements are the root's, count is of the own output. */
RONDO_BY_NAME rondo_result_t rondo_scatter_v(rondo_comm_t comm, const void* input, const uint64_t* counts,
                                             const uint64_t* displacements, void* output, uint64_t count,
                                             rondo_dtype_t dtype, int root, const rondo_options_t* options) {
  const rondo_call_t call =
      rondo_uneven(rondo_even(RONDO_SCATTER, input, output, count, dtype, RONDO_SUM, root, options), counts,
                   displacements, NULL, NULL);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_scatter_v_async(rondo_comm_t comm, const void* input, const uint64_t* counts,
                                                   const uint64_t* displacements, void* output, uint64_t count,
                                                   rondo_dtype_t dtype, int root, const rondo_options_t* options,
                                                   rondo_work_t* work) {
  const rondo_call_t call =
      rondo_uneven(rondo_even(RONDO_SCATTER, input, output, count, dtype, RONDO_SUM, root, options), counts,
                   displacements, NULL, NULL);
  return rondo_start(comm, &call, work);
}

/* send_counts[r] elements go to rank r, recv_counts[r] come from it. The own two entries differ: RONDO_INVALID. */
RONDO_BY_NAME rondo_result_t rondo_all_to_all_v(rondo_comm_t comm, const void* input, const uint64_t* send_counts,
                                                const uint64_t* send_displacements, void* output,
                                                const uint64_t* recv_counts, const uint64_t* recv_displacements,
                                                rondo_dtype_t dtype, const rondo_options_t* options) {
  const rondo_call_t call = rondo_uneven(rondo_even(RONDO_ALL_TO_ALL, input, output, 0, dtype, RONDO_SUM, -1, options),
                                         send_counts, send_displacements, recv_counts, recv_displacements);
  return rondo_run(comm, &call);
}
RONDO_BY_NAME rondo_result_t rondo_all_to_all_v_async(rondo_comm_t comm, const void* input, const uint64_t* send_counts,
                                                      const uint64_t* send_displacements, void* output,
                                                      const uint64_t* recv_counts, const uint64_t* recv_displacements,
                                                      rondo_dtype_t dtype, const rondo_options_t* options,
                                                      rondo_work_t* work) {
  const rondo_call_t call = rondo_uneven(rondo_even(RONDO_ALL_TO_ALL, input, output, 0, dtype, RONDO_SUM, -1, options),
                                         send_counts, send_displacements, recv_counts, recv_displacements);
  return rondo_start(comm, &call, work);
}

#ifdef __cplusplus
}
#endif

#endif /* RONDO_CALLS_C_H_ */
