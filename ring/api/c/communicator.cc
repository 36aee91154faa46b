#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

using rondo::Communicator;

extern "C" {

rondo_result_t rondo_rank(rondo_comm_t comm, int* rank) {
  return guarded([&] { given(rank, "rank") = communicator(comm)->rank(); });
}
rondo_result_t rondo_size(rondo_comm_t comm, int* size) {
  return guarded([&] { given(size, "size") = communicator(comm)->size(); });
}
rondo_result_t rondo_authenticated(rondo_comm_t comm, int* authenticated) {
  return guarded([&] { given(authenticated, "authenticated") = communicator(comm)->authenticated() ? 1 : 0; });
}
rondo_result_t rondo_attach_device(rondo_comm_t comm) {
  return guarded([&] { communicator(comm)->attach_device(); });
}
rondo_result_t rondo_place(rondo_comm_t comm, rondo_place_t* place) {
  return guarded([&] {
    const InUse use(comm);
    const rondo::Place& from = use->place();
    given(place, "place") = {from.rank, from.world, from.local_rank, from.local_world, from.node, from.nodes};
  });
}
rondo_result_t rondo_topology(rondo_comm_t comm, int* host, int* island, int* cores) {
  return guarded([&] {
    const InUse use(comm);
    const rondo::Topology& from = use->topology();
    const auto size = static_cast<size_t>(from.world());
    // An empty list says the same of every rank.
    const auto fill = [size](const std::vector<int>& entries, int otherwise, int* out) {
      if (out != nullptr) entries.empty() ? std::fill_n(out, size, otherwise) : std::copy_n(entries.begin(), size, out);
    };
    fill(from.host, 0, host);
    fill(from.island, -1, island);
    fill(from.cores, 0, cores);
  });
}
rondo_result_t rondo_algorithm_for(rondo_comm_t comm, rondo_collective_t collective, uint64_t count,
                                   rondo_dtype_t dtype, rondo_op_t op, int registered, const char** name) {
  return guarded([&] {
    given(name, "name") = nullptr;
    *name = rondo::algorithm_name(communicator(comm)->algorithm_for(collective_of(collective), count, dtype_of(dtype),
                                                                    op_of(op), registered != 0));
  });
}

rondo_result_t rondo_trace_start(rondo_comm_t comm, const char* folder) {
  return guarded([&] {
    static_cast<void>(given(folder, "folder"));
    communicator(comm)->start_trace(folder);
  });
}
rondo_result_t rondo_trace_stop(rondo_comm_t comm) {
  return guarded([&] { communicator(comm)->stop_trace(); });
}
// Copies what fits, always with a final 0, and gives the whole length: a caller can ask for the length first.
rondo_result_t rondo_metrics(rondo_comm_t comm, char* text, size_t room, size_t* length) {
  return guarded([&] {
    given(length, "length") = 0;
    if (room > 0) given(text, "text") = 0;
    const std::string all = communicator(comm)->metrics();
    *length = all.size();
    if (room == 0) return;
    const size_t copied = std::min(all.size(), room - 1);
    std::copy_n(all.data(), copied, text);
    text[copied] = 0;
  });
}

rondo_result_t rondo_allocate(rondo_comm_t comm, size_t bytes, void** data) {
  return guarded([&] {
    given(data, "data") = nullptr;
    *data = communicator(comm)->allocate(bytes);
  });
}
rondo_result_t rondo_allocate_device(rondo_comm_t comm, size_t bytes, void** data) {
  return guarded([&] {
    given(data, "data") = nullptr;
    *data = communicator(comm)->allocate(bytes, rondo::Memory::kDevice);
  });
}
rondo_result_t rondo_deallocate(rondo_comm_t comm, void* data) {
  return guarded([&] { communicator(comm)->deallocate(data); });
}

rondo_result_t rondo_split(rondo_comm_t comm, int color, int key, rondo_comm_t* sub) {
  return make(sub, "sub", [&] { return communicator(comm)->split(color, key); });
}
rondo_result_t rondo_split_by_host(rondo_comm_t comm, int key, rondo_comm_t* sub) {
  return make(sub, "sub", [&] { return communicator(comm)->split_by_host(key); });
}
rondo_result_t rondo_new_group(rondo_comm_t comm, const int* ranks, size_t count, rondo_comm_t* sub) {
  return make(sub, "sub", [&] { return communicator(comm)->new_group(std::span(&given(ranks, "ranks"), count)); });
}
rondo_result_t rondo_dup(rondo_comm_t comm, rondo_comm_t* copy) {
  return make(copy, "copy", [&] { return communicator(comm)->dup(); });
}
rondo_result_t rondo_shrink(rondo_comm_t comm, int64_t timeout_ms, rondo_comm_t* next) {
  return make(next, "next", [&] { return communicator(comm)->shrink(std::chrono::milliseconds(timeout_ms)); });
}
rondo_result_t rondo_grow(rondo_comm_t comm, int newcomers, int64_t timeout_ms, rondo_comm_t* next) {
  return make(next, "next", [&] { return communicator(comm)->grow(newcomers, std::chrono::milliseconds(timeout_ms)); });
}
rondo_result_t rondo_newcomers(rondo_comm_t comm, int* newcomers) {
  return guarded([&] { given(newcomers, "newcomers") = communicator(comm)->newcomers(); });
}
rondo_result_t rondo_epoch(rondo_comm_t comm, uint64_t* epoch) {
  return guarded([&] { given(epoch, "epoch") = communicator(comm)->epoch(); });
}
rondo_result_t rondo_commit(rondo_comm_t comm, int64_t step, uint64_t digest) {
  return guarded([&] { communicator(comm)->commit(step, digest); });
}
rondo_result_t rondo_committed(rondo_comm_t comm, int64_t* step) {
  return guarded([&] { given(step, "step") = communicator(comm)->committed(); });
}

rondo_result_t rondo_abort(rondo_comm_t comm, const char* reason) {
  return guarded([&] { communicator(comm)->abort(reason != nullptr ? reason : ""); });
}
// No guarded() and no InUse: a signal handler may interrupt any code, and must not touch this thread's last error.
void rondo_abort_from_signal(rondo_comm_t comm) {
  if (comm != nullptr) comm->communicator.abort_from_signal();
}
// guarded() reports a fault of this call itself (a NULL handle); the communicator's failure is the result otherwise.
// Both set this thread's last error.
rondo_result_t rondo_error(rondo_comm_t comm) {
  rondo_result_t result = RONDO_OK;
  const rondo_result_t asked = guarded([&] {
    const auto error = communicator(comm)->error();
    if (error) result = failed(*error);
  });
  return asked != RONDO_OK ? asked : result;
}
rondo_result_t rondo_close(rondo_comm_t comm) {
  return guarded([&] { communicator(comm)->destroy(); });
}
// After rondo_close() the handle goes whatever the result is, except where nothing was closed.
rondo_result_t rondo_destroy(rondo_comm_t comm) {
  const rondo_result_t result = rondo_close(comm);
  if (result != RONDO_INVALID) release(*comm);
  return result;
}

}  // extern "C"
