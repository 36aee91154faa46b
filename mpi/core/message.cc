#include "mpi/core/message.h"

#include <string>

#include "mpi/core/buffer.h"
#include "mpi/core/errors.h"
#include "mpi/core/request.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi {
namespace {

[[noreturn, gnu::cold]] void refuse_peer(const Comm& comm, int peer) {
  fail(MPI_ERR_RANK,
       "the communicator has ranks 0 to " + std::to_string(comm.peers() - 1) + ", and no rank " + std::to_string(peer));
}
[[noreturn, gnu::cold]] void refuse_negative(int code, const char* what, int64_t value) {
  fail(code, std::string(what) + std::to_string(value) + ", negative");
}

// A channel has its sender as rank 0 and its receiver as rank 1, or this rank alone. Only partitioned messages have a
// channel.
rondo::Work start(const Request& request, const Envelope& e, rondo::MessageCall call) {
  if (request.channel == nullptr) return e.comm->engine->start(call);
  call.peer = call.kind == rondo::MessageKind::kSend ? request.channel->size() - 1 : 0;
  return request.channel->start(call);
}

}  // namespace

void check_peer(const Comm& comm, int peer, bool any) {
  if (peer >= 0 && peer < comm.peers()) return;
  if (peer != MPI_PROC_NULL && !(any && peer == MPI_ANY_SOURCE)) refuse_peer(comm, peer);
}
void check_tag(int tag, bool any) {
  if (tag < 0 && !(any && tag == MPI_ANY_TAG)) refuse_negative(MPI_ERR_TAG, "the tag is ", tag);
}

Envelope envelope(MPI_Comm comm, const void* data, MPI_Count count, MPI_Datatype type, int peer, int tag,
                  bool receives) {
  Comm& to = comm_of(comm);
  if (count < 0) refuse_negative(MPI_ERR_COUNT, "the count is ", count);
  auto of = used_type(count == 0 && type == MPI_DATATYPE_NULL ? MPI_BYTE : type);  // nothing has any type
  check_peer(to, peer, receives);
  check_tag(tag, receives);
  Envelope made{&to, std::move(of), const_cast<void*>(data), count, peer, tag};
  const MPI_Count bytes = made.bytes();
  // MPI_BOTTOM is null. It goes with types of absolute addresses, which are not dense.
  require(data != nullptr || bytes == 0 || !made.type->dense || peer == MPI_PROC_NULL, MPI_ERR_BUFFER,
          "the buffer is null");
  return made;
}

// A receive takes a longer message in part and then fails with MPI_ERR_TRUNCATE. Without this option the engine would
// fail the communicator.
rondo::MessageCall call_of(const Envelope& e, rondo::MessageKind kind, void* data) {
  rondo::MessageCall call{.kind = kind,
                          .data = data,
                          .count = static_cast<uint64_t>(e.bytes()),
                          .dtype = rondo::DType::kUint8,
                          .peer = e.peer == MPI_ANY_SOURCE ? rondo::kAnySource : e.comm->engine_rank(e.peer),
                          .tag = e.tag == MPI_ANY_TAG ? rondo::kAnyTag : e.tag};
  call.options.truncate = kind == rondo::MessageKind::kReceive;
  return call;
}

rondo::MessageCall send_of(const Envelope& e, Mode mode, void* data) {
  rondo::MessageCall call = call_of(e, rondo::MessageKind::kSend, data);
  call.options.synchronous = mode == Mode::kSynchronous;
  return call;
}

PackedData packed(const Envelope& e) {
  PackedData memory(e);
  if (memory.beside != nullptr) pack(*e.type, e.data, e.count, memory.beside.get());
  return memory;
}
void unpack_from(const Envelope& e, const PackedData& memory, MPI_Count bytes) {
  if (memory.beside == nullptr) return;
  unpack(*e.type, e.data, e.count, memory.beside.get(), bytes);
  require(elements_in(*e.type, bytes) != MPI_UNDEFINED, MPI_ERR_TYPE, "the message ends inside of an element");
}

bool send_at_once(const Envelope& e, Mode mode) {
  if (!e.nobody() && mode == Mode::kBuffered) send_buffered(e);
  return e.nobody() || mode == Mode::kBuffered;
}

// The packed copy lives in the request's finish().
void start_send(Request& request, const Envelope& e, Mode mode) {
  if (send_at_once(e, mode)) return;
  const PackedData memory = packed(e);
  request.work = start(request, e, send_of(e, mode, memory.data));
  if (memory.beside != nullptr) request.finish = [kept = memory.beside] {};
}

void start_receive(Request& request, const Envelope& e, uint64_t matched) {
  request.outcome = {e.peer, e.tag};
  if (e.nobody()) {
    request.outcome = kNobody;
    return;
  }
  const PackedData memory(e);
  rondo::MessageCall call = call_of(e, rondo::MessageKind::kReceive, memory.data);
  call.matched = matched;
  request.work = start(request, e, call);
  if (memory.beside != nullptr)
    request.finish = [kept = KeptEnvelope(e), memory, &request] { unpack_from(kept, memory, request.outcome.bytes); };
}

std::shared_ptr<Request> request_of(const Envelope& e, Request::Kind kind) {
  return make_request(kind, e.comm->shared_from_this());
}

}  // namespace rondo_mpi
