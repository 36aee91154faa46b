#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ring/base/log.h"
#include "ring/communicator_access.h"
#include "ring/engine/call/collective_call.h"
#include "rondo/communicator.h"
#include "rondo/interrupt.h"
#include "rondo/log.h"
#include "rondo/rondo.h"
#include "rondo/unique_id.h"

// Opaque to callers.
struct rondo_comm {
  rondo::Communicator communicator;
};
struct rondo_work {
  rondo::Work work;
};
struct rondo_id_server {
  rondo::UniqueIdServer server;
};

namespace {

using rondo::Algorithm;
using rondo::Collective;
using rondo::CollectiveCall;
using rondo::Communicator;
using rondo::CommunicatorAccess;
using rondo::ErrorCode;
using rondo::Exception;
using rondo::uneven_call;
using rondo::Work;

// The values of the C API are those of the C++ enumerations.
static_assert(RONDO_FLOAT8_E5M2 == static_cast<int>(rondo::DType::kFloat8E5M2) &&
              RONDO_FLOAT16 == static_cast<int>(rondo::DType::kFloat16));
static_assert(RONDO_PREMULSUM == static_cast<int>(rondo::Op::kPremulSum) &&
              RONDO_AVG == static_cast<int>(rondo::Op::kAverage));
static_assert(RONDO_EPOCH_STALE == static_cast<int>(ErrorCode::kEpochStale) &&
              RONDO_INTERNAL == static_cast<int>(ErrorCode::kInternal));

// This thread's last failure.
thread_local std::string last_error;
thread_local std::vector<int> last_error_ranks;

rondo_result_t failed(ErrorCode code, const char* message, std::vector<int> ranks = {}) noexcept {
  try {
    last_error = message;
    last_error_ranks = std::move(ranks);
  } catch (...) {
    last_error.clear();  // out of memory: the code must do
  }
  return static_cast<rondo_result_t>(code);
}

// Runs `action` and turns what it throws into a code and the last error. No exception leaves it.
template <typename Action>
rondo_result_t guarded(Action action) noexcept {
  try {
    action();
    return RONDO_OK;
  } catch (const Exception& e) {
    return failed(e.code(), e.what(), e.error().ranks);
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::kSystem, "out of memory");
  } catch (const std::exception& e) {
    return failed(ErrorCode::kInternal, e.what());
  } catch (...) {
    return failed(ErrorCode::kInternal, "an unknown exception");
  }
}

template <typename T>
T& given(T* pointer, const char* what) {
  if (pointer == nullptr) throw Exception(ErrorCode::kInvalid, std::string(what) + " is NULL");
  return *pointer;
}

Communicator& communicator(rondo_comm_t comm) { return given(comm, "comm").communicator; }

Algorithm algorithm_named(const char* name) {
  if (name == nullptr) return Algorithm::kAuto;
  for (int i = 0; i < rondo::kAlgorithms; ++i) {
    if (std::strcmp(name, rondo::algorithm_name(static_cast<Algorithm>(i))) == 0) return static_cast<Algorithm>(i);
  }
  std::string known;
  for (int i = 0; i < rondo::kAlgorithms; ++i) {
    if (i > 0) known += i + 1 < rondo::kAlgorithms ? ", " : " and ";
    known += rondo::algorithm_name(static_cast<Algorithm>(i));
  }
  throw Exception(ErrorCode::kInvalid, std::string("algorithm \"") + name + "\" is unknown; there are " + known);
}

// The C API takes any integer; the C++ enumerations hold a byte.
rondo::DType dtype_of(rondo_dtype_t dtype) {
  if (dtype >= 0 && dtype < rondo::kDTypes) return static_cast<rondo::DType>(dtype);
  throw Exception(ErrorCode::kInvalid, "unknown dtype " + std::to_string(dtype));
}

rondo::Op op_of(rondo_op_t op) {
  if (op >= 0 && op < rondo::kOps) return static_cast<rondo::Op>(op);
  throw Exception(ErrorCode::kInvalid, "unknown op " + std::to_string(op));
}

// More than any structure of this API will have: a longer one was not initialized.
constexpr size_t kMostStructBytes = 1024;

// A caller's structure, which may be that of an older or a newer header. `defaults`: for the fields that the caller
// does not know. Fields that this library does not know must be zero.
template <typename T>
T read_struct(const T* given, T defaults, const char* name) {
  const size_t bytes = given->struct_bytes;
  const auto refuse = [&](const char* why) {
    throw Exception(ErrorCode::kInvalid,
                    std::string(name) + "->struct_bytes is " + std::to_string(bytes) + ", and " + why);
  };
  if (bytes < sizeof(size_t) || bytes > kMostStructBytes || bytes % alignof(T) != 0) {
    refuse("no header has such a size: initialize the structure with its _INIT macro");
  }
  std::memcpy(&defaults, given, std::min(bytes, sizeof(T)));
  const auto* raw = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(raw + std::min(bytes, sizeof(T)), raw + bytes, [](unsigned char byte) { return byte != 0; })) {
    refuse("it sets fields that this version of the library (" RONDO_VERSION ") does not have");
  }
  return defaults;
}

rondo::CallOptions options_of(const rondo_options_t* given) {
  if (given == nullptr) return {};
  const rondo_options_t options = read_struct(given, rondo_options_t RONDO_OPTIONS_INIT, "options");
  rondo::CallOptions made;
  made.timeout = std::chrono::milliseconds(options.timeout_ms);
  made.scalar = options.scalar;
  made.algorithm = algorithm_named(options.algorithm);
  return made;
}

CollectiveCall call_of(Collective collective, const void* input, void* output, uint64_t count, rondo_dtype_t dtype,
                       const rondo_options_t* options, rondo_op_t op = RONDO_SUM, int root = -1) {
  return {.collective = collective,
          .input = input,
          .output = output,
          .count = count,
          .dtype = dtype_of(dtype),
          .op = op_of(op),
          .root = root,
          .options = options_of(options)};
}

// Arrays with an entry a rank; NULL: none.
class Entries {
 public:
  explicit Entries(rondo_comm_t comm) : size_(static_cast<size_t>(communicator(comm).size())) {}
  std::span<const uint64_t> operator()(const uint64_t* values) const {
    return values == nullptr ? std::span<const uint64_t>() : std::span(values, size_);
  }

 private:
  size_t size_;
};

// Runs `action`, which gives a Work, and hands out a handle to it.
template <typename Action>
rondo_result_t start(rondo_work_t* work, Action action) noexcept {
  return guarded([&] {
    given(work, "work") = nullptr;
    auto handle = std::make_unique<rondo_work>();
    handle->work = action();
    *work = handle.release();
  });
}

// `call`: gives the CollectiveCall.
template <typename Call>
rondo_result_t run_call(rondo_comm_t comm, Call call) noexcept {
  return guarded([&] { CommunicatorAccess::run(communicator(comm), call()); });
}
template <typename Call>
rondo_result_t start_call(rondo_comm_t comm, rondo_work_t* work, Call call) noexcept {
  return start(work, [&] { return CommunicatorAccess::start(communicator(comm), call()); });
}

std::vector<rondo::TensorRef> list_of(const rondo_tensor_t* tensors, size_t count) {
  if (count > 0) given(tensors, "tensors");
  std::vector<rondo::TensorRef> list;
  list.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    list.push_back({tensors[i].input, tensors[i].output, tensors[i].count, dtype_of(tensors[i].dtype)});
  }
  return list;
}

void fill(rondo_message_t* message, const Work::Message& from) {
  if (message != nullptr) *message = {from.peer, from.tag, from.bytes};
}

}  // namespace

extern "C" {

const char* rondo_version(void) { return RONDO_VERSION; }
const char* rondo_last_error(void) { return last_error.c_str(); }

const char* rondo_result_name(rondo_result_t result) {
  return result == RONDO_IN_PROGRESS ? "IN_PROGRESS" : rondo::error_code_name(static_cast<ErrorCode>(result));
}

size_t rondo_last_error_ranks(int* ranks, size_t capacity) {
  for (size_t i = 0; i < last_error_ranks.size() && i < capacity && ranks != nullptr; ++i)
    ranks[i] = last_error_ranks[i];
  return last_error_ranks.size();
}

rondo_result_t rondo_set_log(rondo_log_function_t function, void* context) {
  return guarded([&] { rondo::set_log_function(function, context); });
}

rondo_result_t rondo_set_interrupt(rondo_interrupt_function_t function, void* context) {
  return guarded([&] { rondo::set_interrupt_function(function, context); });
}

rondo_result_t rondo_init(rondo_comm_t* comm) { return rondo_init_at(comm, -1, -1, nullptr); }

rondo_result_t rondo_init_at(rondo_comm_t* comm, int rank, int world, const char* rendezvous) {
  return guarded([&] {
    given(comm, "comm") = nullptr;
    rondo::JoinOptions options;
    options.rank = rank;
    options.world = world;
    if (rendezvous != nullptr) options.rendezvous = rendezvous;
    *comm = new rondo_comm{Communicator::join(options)};
  });
}

rondo_result_t rondo_id_server_create(rondo_id_server_t* server, const char* host, const char** id) {
  return guarded([&] {
    given(server, "server") = nullptr;
    given(id, "id") = nullptr;
    auto made = std::unique_ptr<rondo_id_server>(
        new rondo_id_server{rondo::UniqueIdServer(host != nullptr ? host : "127.0.0.1")});
    *id = made->server.id().c_str();
    *server = made.release();
  });
}

rondo_result_t rondo_id_server_destroy(rondo_id_server_t server) {
  return guarded([&] { delete server; });
}

rondo_result_t rondo_init_inproc(rondo_comm_t* comms, int world) {
  return guarded([&] {
    given(comms, "comms");
    auto made = Communicator::inproc(world, rondo::Config::from_environment());
    for (size_t r = 0; r < made.size(); ++r) comms[r] = new rondo_comm{std::move(made[r])};
  });
}

rondo_result_t rondo_rank(rondo_comm_t comm, int* rank) {
  return guarded([&] { given(rank, "rank") = communicator(comm).rank(); });
}
rondo_result_t rondo_size(rondo_comm_t comm, int* size) {
  return guarded([&] { given(size, "size") = communicator(comm).size(); });
}
rondo_result_t rondo_local_rank(rondo_comm_t comm, int* local_rank) {
  return guarded([&] { given(local_rank, "local_rank") = communicator(comm).place().local_rank; });
}
rondo_result_t rondo_local_size(rondo_comm_t comm, int* local_size) {
  return guarded([&] { given(local_size, "local_size") = communicator(comm).place().local_world; });
}
rondo_result_t rondo_node(rondo_comm_t comm, int* node, int* nodes) {
  return guarded([&] {
    given(node, "node") = communicator(comm).place().node;
    given(nodes, "nodes") = communicator(comm).place().nodes;
  });
}

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

rondo_result_t rondo_all_reduce_many(rondo_comm_t comm, const rondo_tensor_t* tensors, size_t tensor_count,
                                     rondo_op_t op, const rondo_options_t* options) {
  return guarded(
      [&] { communicator(comm).all_reduce_many(list_of(tensors, tensor_count), op_of(op), options_of(options)); });
}
rondo_result_t rondo_all_reduce_many_async(rondo_comm_t comm, const rondo_tensor_t* tensors, size_t tensor_count,
                                           rondo_op_t op, const rondo_options_t* options, rondo_work_t* work) {
  return start(work, [&] {
    return communicator(comm).all_reduce_many_async(list_of(tensors, tensor_count), op_of(op), options_of(options));
  });
}

rondo_result_t rondo_batch_begin(rondo_comm_t comm) {
  return guarded([&] { communicator(comm).batch_begin(); });
}
rondo_result_t rondo_batch_end(rondo_comm_t comm) {
  return guarded([&] { communicator(comm).batch_end(); });
}
rondo_result_t rondo_batch_end_async(rondo_comm_t comm, rondo_work_t* work) {
  return start(work, [&] { return communicator(comm).batch_end_async(); });
}
rondo_result_t rondo_batch_abandon(rondo_comm_t comm) {
  return guarded([&] { communicator(comm).batch_abandon(); });
}

rondo_result_t rondo_send(rondo_comm_t comm, const void* data, uint64_t count, rondo_dtype_t dtype, int peer, int tag,
                          const rondo_options_t* options) {
  return guarded([&] { communicator(comm).send(data, count, dtype_of(dtype), peer, tag, options_of(options)); });
}
rondo_result_t rondo_send_async(rondo_comm_t comm, const void* data, uint64_t count, rondo_dtype_t dtype, int peer,
                                int tag, const rondo_options_t* options, rondo_work_t* work) {
  return start(work, [&] {
    return communicator(comm).send_async(data, count, dtype_of(dtype), peer, tag, options_of(options));
  });
}
rondo_result_t rondo_recv(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, int peer, int tag,
                          const rondo_options_t* options, rondo_message_t* message) {
  return guarded(
      [&] { fill(message, communicator(comm).recv(data, count, dtype_of(dtype), peer, tag, options_of(options))); });
}
rondo_result_t rondo_recv_async(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, int peer, int tag,
                                const rondo_options_t* options, rondo_work_t* work) {
  return start(work, [&] {
    return communicator(comm).recv_async(data, count, dtype_of(dtype), peer, tag, options_of(options));
  });
}
rondo_result_t rondo_sendrecv(rondo_comm_t comm, const void* send_data, uint64_t send_count, int to, void* recv_data,
                              uint64_t recv_count, int from, rondo_dtype_t dtype, int tag,
                              const rondo_options_t* options, rondo_message_t* message) {
  return guarded([&] {
    fill(message, communicator(comm).sendrecv(send_data, send_count, to, recv_data, recv_count, from, dtype_of(dtype),
                                              tag, options_of(options)));
  });
}

rondo_result_t rondo_wait(rondo_work_t work, int64_t timeout_ms) {
  bool done = true;
  const rondo_result_t result = guarded([&] {
    Work& handle = given(work, "work").work;
    constexpr auto kForever = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds::max());
    if (timeout_ms < 0 || timeout_ms >= kForever.count()) {
      handle.wait();
    } else {
      done = handle.wait(std::chrono::milliseconds(timeout_ms));
    }
  });
  return result == RONDO_OK && !done ? RONDO_IN_PROGRESS : result;
}
rondo_result_t rondo_test(rondo_work_t work, int* done) {
  return guarded([&] { given(done, "done") = given(work, "work").work.done() ? 1 : 0; });
}
rondo_result_t rondo_work_message(rondo_work_t work, rondo_message_t* message) {
  return guarded([&] { fill(&given(message, "message"), given(work, "work").work.message()); });
}
rondo_result_t rondo_work_free(rondo_work_t work) {
  return guarded([&] { delete work; });
}

rondo_result_t rondo_allocate(rondo_comm_t comm, size_t bytes, void** data) {
  return guarded([&] {
    given(data, "data") = nullptr;
    *data = communicator(comm).allocate(bytes);
  });
}
rondo_result_t rondo_deallocate(rondo_comm_t comm, void* data) {
  return guarded([&] { communicator(comm).deallocate(data); });
}

rondo_result_t rondo_split(rondo_comm_t comm, int color, int key, rondo_comm_t* sub) {
  return guarded([&] {
    given(sub, "sub") = nullptr;
    Communicator made = communicator(comm).split(color, key);
    if (made.valid()) *sub = new rondo_comm{std::move(made)};
  });
}
rondo_result_t rondo_new_group(rondo_comm_t comm, const int* ranks, size_t count, rondo_comm_t* sub) {
  return guarded([&] {
    given(sub, "sub") = nullptr;
    *sub = new rondo_comm{communicator(comm).new_group(std::span(&given(ranks, "ranks"), count))};
  });
}

rondo_result_t rondo_abort(rondo_comm_t comm, const char* reason) {
  return guarded([&] { communicator(comm).abort(reason != nullptr ? reason : ""); });
}
rondo_result_t rondo_destroy(rondo_comm_t comm) {
  return guarded([&] {
    const std::unique_ptr<rondo_comm> handle(&given(comm, "comm"));  // freed whatever destroy() throws
    handle->communicator.destroy();
  });
}

}  // extern "C"
