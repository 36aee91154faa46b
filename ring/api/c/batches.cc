#include <cstddef>
#include <vector>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

namespace {

// Reads the list; the tensors' own memory is not touched. Throws Exception(kInvalid) for a NULL list or an unknown
// dtype.
std::vector<rondo::TensorRef> list_of(const rondo_tensor_t* tensors, size_t count) {
  if (count > 0) given(tensors, "tensors");
  std::vector<rondo::TensorRef> list;
  list.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    list.push_back({tensors[i].input, tensors[i].output, tensors[i].count, dtype_of(tensors[i].dtype)});
  }
  return list;
}

}  // namespace

extern "C" {

rondo_result_t rondo_all_reduce_many(rondo_comm_t comm, const rondo_tensor_t* tensors, size_t tensor_count,
                                     rondo_op_t op, const rondo_options_t* options) {
  return guarded(
      [&] { communicator(comm)->all_reduce_many(list_of(tensors, tensor_count), op_of(op), options_of(options)); });
}
rondo_result_t rondo_all_reduce_many_async(rondo_comm_t comm, const rondo_tensor_t* tensors, size_t tensor_count,
                                           rondo_op_t op, const rondo_options_t* options, rondo_work_t* work) {
  return start(work, [&] {
    return communicator(comm)->all_reduce_many_async(list_of(tensors, tensor_count), op_of(op), options_of(options));
  });
}

// A batch belongs to the thread that begins it: each call of that thread on this communicator is kept until the end.
// All four functions are calls of that thread.
rondo_result_t rondo_batch_begin(rondo_comm_t comm) {
  return guarded([&] { communicator(comm)->batch_begin(); });
}
rondo_result_t rondo_batch_end(rondo_comm_t comm) {
  return guarded([&] { communicator(comm)->batch_end(); });
}
rondo_result_t rondo_batch_end_async(rondo_comm_t comm, rondo_work_t* work) {
  return start(work, [&] { return communicator(comm)->batch_end_async(); });
}
rondo_result_t rondo_batch_abandon(rondo_comm_t comm) {
  return guarded([&] { communicator(comm)->batch_abandon(); });
}

}  // extern "C"
