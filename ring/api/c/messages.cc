#include <optional>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

namespace {

// Looks for a message. found and message are checked first: a matched message that could not be returned would
// be lost.
template <typename Look>
rondo_result_t look(int* found, rondo_message_t* message, Look look) {
  return guarded([&] {
    given(found, "found") = 0;
    given(message, "message");
    if (const std::optional<rondo::Message> from = look()) {
      fill(message, *from);
      *found = 1;
    }
  });
}

}  // namespace

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
rondo_result_t rondo_sendrecv_async(rondo_comm_t comm, const void* send_data, uint64_t send_count, int to,
                                    void* recv_data, uint64_t recv_count, int from, rondo_dtype_t dtype, int tag,
                                    const rondo_options_t* options, rondo_work_t* work) {
  return start(work, [&] {
    return communicator(comm)->sendrecv_async(send_data, send_count, to, recv_data, recv_count, from, dtype_of(dtype),
                                              tag, options_of(options));
  });
}

rondo_result_t rondo_probe(rondo_comm_t comm, int peer, int tag, const rondo_options_t* options,
                           rondo_message_t* message) {
  return guarded([&] { fill(message, communicator(comm)->probe(peer, tag, options_of(options))); });
}
rondo_result_t rondo_probe_async(rondo_comm_t comm, int peer, int tag, const rondo_options_t* options,
                                 rondo_work_t* work) {
  return start(work, [&] { return communicator(comm)->probe_async(peer, tag, options_of(options)); });
}
rondo_result_t rondo_iprobe(rondo_comm_t comm, int peer, int tag, int* found, rondo_message_t* message) {
  return look(found, message, [&] { return communicator(comm)->iprobe(peer, tag); });
}
rondo_result_t rondo_mprobe(rondo_comm_t comm, int peer, int tag, const rondo_options_t* options,
                            rondo_message_t* message) {
  return guarded([&] {
    given(message, "message");  // first: what is found would be lost
    fill(message, communicator(comm)->mprobe(peer, tag, options_of(options)));
  });
}
rondo_result_t rondo_mprobe_async(rondo_comm_t comm, int peer, int tag, const rondo_options_t* options,
                                  rondo_work_t* work) {
  return start(work, [&] { return communicator(comm)->mprobe_async(peer, tag, options_of(options)); });
}
rondo_result_t rondo_improbe(rondo_comm_t comm, int peer, int tag, int* found, rondo_message_t* message) {
  return look(found, message, [&] { return communicator(comm)->improbe(peer, tag); });
}
rondo_result_t rondo_mrecv(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, uint64_t matched,
                           const rondo_options_t* options, rondo_message_t* message) {
  return guarded(
      [&] { fill(message, communicator(comm)->mrecv(data, count, dtype_of(dtype), matched, options_of(options))); });
}
rondo_result_t rondo_mrecv_async(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, uint64_t matched,
                                 const rondo_options_t* options, rondo_work_t* work) {
  return start(work, [&] {
    return communicator(comm)->mrecv_async(data, count, dtype_of(dtype), matched, options_of(options));
  });
}

}  // extern "C"
