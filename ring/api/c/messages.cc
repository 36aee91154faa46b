#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

extern "C" {

rondo_result_t rondo_send(rondo_comm_t comm, const void* data, uint64_t count, rondo_dtype_t dtype, int peer, int tag,
                          const rondo_options_t* options) {
  return guarded([&] { communicator(comm)->send(data, count, dtype_of(dtype), peer, tag, options_of(options)); });
}
rondo_result_t rondo_send_async(rondo_comm_t comm, const void* data, uint64_t count, rondo_dtype_t dtype, int peer,
                                int tag, const rondo_options_t* options, rondo_work_t* work) {
  return start(work, [&] {
    return communicator(comm)->send_async(data, count, dtype_of(dtype), peer, tag, options_of(options));
  });
}
rondo_result_t rondo_recv(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, int peer, int tag,
                          const rondo_options_t* options, rondo_message_t* message) {
  return guarded(
      [&] { fill(message, communicator(comm)->recv(data, count, dtype_of(dtype), peer, tag, options_of(options))); });
}
rondo_result_t rondo_recv_async(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, int peer, int tag,
                                const rondo_options_t* options, rondo_work_t* work) {
  return start(work, [&] {
    return communicator(comm)->recv_async(data, count, dtype_of(dtype), peer, tag, options_of(options));
  });
}
rondo_result_t rondo_sendrecv(rondo_comm_t comm, const void* send_data, uint64_t send_count, int to, void* recv_data,
                              uint64_t recv_count, int from, rondo_dtype_t dtype, int tag,
                              const rondo_options_t* options, rondo_message_t* message) {
  return guarded([&] {
    fill(message, communicator(comm)->sendrecv(send_data, send_count, to, recv_data, recv_count, from, dtype_of(dtype),
                                               tag, options_of(options)));
  });
}

}  // extern "C"
