#include <cstddef>
#include <cstdint>
#include <span>

#include "ring/c/arguments.h"
#include "ring/c/handles.h"
#include "ring/c/result.h"
#include "rondo/rondo.h"

using rondo::Collective;
using rondo::uneven_call;
using rondo::c::call_of;
using rondo::c::run_call;
using rondo::c::start_call;

namespace {

// Arrays with an entry a rank; NULL: none.
class Entries {
 public:
  explicit Entries(rondo_comm_t comm) : size_(static_cast<size_t>(rondo::c::communicator(comm)->size())) {}
  std::span<const uint64_t> operator()(const uint64_t* values) const {
    return values == nullptr ? std::span<const uint64_t>() : std::span(values, size_);
  }

 private:
  size_t size_;
};

}  // namespace

extern "C" {

rondo_result_t rondo_all_gather_v(rondo_comm_t comm, const void* input, void* output, const uint64_t* counts,
                                  const uint64_t* displacements, rondo_dtype_t dtype, const rondo_options_t* options) {
  return run_call(comm, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kAllGather, nullptr, nullptr, 0, dtype, options), {input},
                       {output, entries(counts), entries(displacements)});
  });
}
rondo_result_t rondo_all_gather_v_async(rondo_comm_t comm, const void* input, void* output, const uint64_t* counts,
                                        const uint64_t* displacements, rondo_dtype_t dtype,
                                        const rondo_options_t* options, rondo_work_t* work) {
  return start_call(comm, work, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kAllGather, nullptr, nullptr, 0, dtype, options), {input},
                       {output, entries(counts), entries(displacements)});
  });
}
rondo_result_t rondo_reduce_scatter_v(rondo_comm_t comm, const void* input, void* output, const uint64_t* counts,
                                      rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options) {
  return run_call(comm, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kReduceScatter, nullptr, nullptr, 0, dtype, options, op),
                       {input, entries(counts)}, {output});
  });
}
rondo_result_t rondo_reduce_scatter_v_async(rondo_comm_t comm, const void* input, void* output, const uint64_t* counts,
                                            rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options,
                                            rondo_work_t* work) {
  return start_call(comm, work, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kReduceScatter, nullptr, nullptr, 0, dtype, options, op),
                       {input, entries(counts)}, {output});
  });
}
rondo_result_t rondo_gather_v(rondo_comm_t comm, const void* input, uint64_t count, void* output,
                              const uint64_t* counts, const uint64_t* displacements, rondo_dtype_t dtype, int root,
                              const rondo_options_t* options) {
  return run_call(comm, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kGather, nullptr, nullptr, count, dtype, options, RONDO_SUM, root), {input},
                       {output, entries(counts), entries(displacements)});
  });
}
rondo_result_t rondo_gather_v_async(rondo_comm_t comm, const void* input, uint64_t count, void* output,
                                    const uint64_t* counts, const uint64_t* displacements, rondo_dtype_t dtype,
                                    int root, const rondo_options_t* options, rondo_work_t* work) {
  return start_call(comm, work, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kGather, nullptr, nullptr, count, dtype, options, RONDO_SUM, root), {input},
                       {output, entries(counts), entries(displacements)});
  });
}
rondo_result_t rondo_scatter_v(rondo_comm_t comm, const void* input, const uint64_t* counts,
                               const uint64_t* displacements, void* output, uint64_t count, rondo_dtype_t dtype,
                               int root, const rondo_options_t* options) {
  return run_call(comm, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kScatter, nullptr, nullptr, count, dtype, options, RONDO_SUM, root),
                       {input, entries(counts), entries(displacements)}, {output});
  });
}
rondo_result_t rondo_scatter_v_async(rondo_comm_t comm, const void* input, const uint64_t* counts,
                                     const uint64_t* displacements, void* output, uint64_t count, rondo_dtype_t dtype,
                                     int root, const rondo_options_t* options, rondo_work_t* work) {
  return start_call(comm, work, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kScatter, nullptr, nullptr, count, dtype, options, RONDO_SUM, root),
                       {input, entries(counts), entries(displacements)}, {output});
  });
}
rondo_result_t rondo_all_to_all_v(rondo_comm_t comm, const void* input, const uint64_t* send_counts,
                                  const uint64_t* send_displacements, void* output, const uint64_t* recv_counts,
                                  const uint64_t* recv_displacements, rondo_dtype_t dtype,
                                  const rondo_options_t* options) {
  return run_call(comm, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kAllToAll, nullptr, nullptr, 0, dtype, options),
                       {input, entries(send_counts), entries(send_displacements)},
                       {output, entries(recv_counts), entries(recv_displacements)});
  });
}
rondo_result_t rondo_all_to_all_v_async(rondo_comm_t comm, const void* input, const uint64_t* send_counts,
                                        const uint64_t* send_displacements, void* output, const uint64_t* recv_counts,
                                        const uint64_t* recv_displacements, rondo_dtype_t dtype,
                                        const rondo_options_t* options, rondo_work_t* work) {
  return start_call(comm, work, [&] {
    const Entries entries(comm);
    return uneven_call(call_of(Collective::kAllToAll, nullptr, nullptr, 0, dtype, options),
                       {input, entries(send_counts), entries(send_displacements)},
                       {output, entries(recv_counts), entries(recv_displacements)});
  });
}

}  // extern "C"
