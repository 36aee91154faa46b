// Messages: MPI_Send and its kin, receives. The engine matches by source and tag in the order of sends of each pair,
// which is MPI's order (MPI-4, 3.5). A blocking call makes progress on its own thread. After a nonblocking one the
// thread that waits does, or the engine's thread while none waits. The request owns what the call keeps: packed data,
// the datatype, the communicator.

#include "mpi/core/message.h"

#include "mpi/core/errors.h"
#include "mpi/core/request.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// --- Sends

// A standard send may return before its receive has begun, as the engine's does: programs must not rely on that.
void send(const Envelope& e, Mode mode) {
  if (send_at_once(e, mode)) return;
  const PackedData memory = packed(e);
  e.comm->engine->run(send_of(e, mode, memory.data));
}

void isend(const Envelope& e, MPI_Request* request, Mode mode) {
  auto made = request_of(e, Request::Kind::kSend);
  start_send(*made, e, mode);
  *request = add_request(std::move(made));
}

// A persistent request packs at each MPI_Start(), since the program may have changed the data.
void send_init(const Envelope& e, MPI_Request* request, Mode mode) {
  auto made = request_of(e, Request::Kind::kSend);
  made->active = false;
  made->start = [kept = KeptEnvelope(e), mode](Request& started) { start_send(started, kept, mode); };
  *request = add_request(std::move(made));
}

// --- Receives

// Receives by take(call), which returns what has come. A truncated message fills the status, too: MPI gives its source
// and tag beside the error.
template <typename Take>
void receive_by(const Envelope& e, MPI_Status* status, const Take& take) {
  const PackedData memory(e);
  try {
    const Outcome outcome = outcome_of(*e.comm, take(call_of(e, rondo::MessageKind::kReceive, memory.data)));
    unpack_from(e, memory, outcome.bytes);
    set_status(status, outcome);
  } catch (const rondo::Exception& exception) {
    if (exception.code() == rondo::ErrorCode::kTruncated && !exception.error().ranks.empty()) {
      set_status(status, {e.comm->peer_of(exception.error().ranks[0]), exception.error().tag, e.bytes()});
    }
    throw;
  }
}

void receive(const Envelope& e, MPI_Status* status, uint64_t matched = 0) {
  if (e.nobody()) return set_status(status, kNobody);
  receive_by(e, status, [&](rondo::MessageCall call) {
    call.matched = matched;
    return e.comm->engine->run(call);
  });
}

// Both start before either is waited for: two ranks that call this do not block each other. The engine moves both on
// this thread.
void send_and_receive(const Envelope& to, const Envelope& from, MPI_Status* status) {
  if (to.nobody()) return receive(from, status);
  if (from.nobody()) {
    send(to, Mode::kStandard);
    return set_status(status, kNobody);
  }
  const PackedData memory = packed(to);
  receive_by(from, status, [&](const rondo::MessageCall& call) {
    rondo::MessageCall sent = call_of(to, rondo::MessageKind::kSend, memory.data);
    sent.options = call.options;
    return to.comm->engine->run(sent, call);
  });
}

// A copy of what a call with _replace sends, in whose place it receives. The copy is bytes, so it is sent as it is.
Envelope copied(const Envelope& e, std::shared_ptr<std::byte[]>& memory) {
  if (e.nobody()) return e;
  memory = std::make_shared<std::byte[]>(static_cast<size_t>(e.bytes()));
  pack(*e.type, e.data, e.count, memory.get());
  Envelope copy = e;
  copy.data = memory.get();
  copy.count = e.bytes();
  copy.type = byte_type();
  return copy;
}

// One request for both, which is over when both are. It is the receive's, whose status MPI gives.
void start_both(const Envelope& to, const Envelope& from, const std::shared_ptr<std::byte[]>& memory,
                MPI_Request* request) {
  auto made = request_of(from, Request::Kind::kReceive);
  start_receive(*made, from);
  Request sent;
  try {
    start_send(sent, to, Mode::kStandard);
  } catch (...) {
    release(made);  // the receive is under way, and keeps its memory
    throw;
  }
  if (sent.work.valid()) made->also.push_back(sent.work);
  made->finish = [first = made->finish, kept = sent.finish, memory] {
    if (first) first();
  };
  *request = add_request(std::move(made));
}

// --- Matched messages

// What is received of a matched message, whose handle is null afterwards. Takes the handle first, so no other thread
// can receive the message (MPI-4, 3.8.3).
std::pair<KeptEnvelope, uint64_t> matched(void* data, MPI_Count count, MPI_Datatype type, MPI_Message* message) {
  require(count >= 0, MPI_ERR_COUNT, "the count is negative");
  auto of = used_type(type);
  product(count, of->size);
  const auto found = world().messages.share(*message);
  require(found != nullptr, MPI_ERR_REQUEST, "the message is null, or was received");
  const bool nobody = *message == MPI_MESSAGE_NO_PROC;
  Comm* const comm = nobody ? world().self.get() : found->comm.get();
  if (!nobody) world().messages.remove(*message);
  *message = MPI_MESSAGE_NULL;
  const Envelope e{comm, std::move(of), data, count, nobody ? MPI_PROC_NULL : MPI_ANY_SOURCE, MPI_ANY_TAG};
  return {KeptEnvelope(e), found->matched};
}

std::shared_ptr<Comm> comm_of_message(const MPI_Message* message) {
  const auto found = world().messages.share(*message);
  return found == nullptr ? nullptr : found->comm;
}

}  // namespace

// The forms with counts of int are made by table/generate.py, here and below.
#define SEND(Name, mode)                                                                                           \
  void MPI_##Name##_c(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) { \
    send(envelope(comm, buf, count, datatype, dest, tag, false), mode);                                            \
  }
#define START_SEND(Name, function, mode)                                                                         \
  void MPI_##Name##_c(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, \
                      MPI_Request* request) {                                                                    \
    function(envelope(comm, buf, count, datatype, dest, tag, false), request, mode);                             \
  }
SEND(Send, Mode::kStandard)
SEND(Ssend, Mode::kSynchronous)
SEND(Rsend, Mode::kStandard)
SEND(Bsend, Mode::kBuffered)
START_SEND(Isend, isend, Mode::kStandard)
START_SEND(Issend, isend, Mode::kSynchronous)
START_SEND(Irsend, isend, Mode::kStandard)
START_SEND(Ibsend, isend, Mode::kBuffered)
START_SEND(Send_init, send_init, Mode::kStandard)
START_SEND(Ssend_init, send_init, Mode::kSynchronous)
START_SEND(Rsend_init, send_init, Mode::kStandard)
START_SEND(Bsend_init, send_init, Mode::kBuffered)

void MPI_Recv_c(void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                MPI_Status* status) {
  receive(envelope(comm, buf, count, datatype, source, tag, true), status);
}
// The buffer is the engine's until the request is over.
void MPI_Irecv_c(void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                 MPI_Request* request) {
  const Envelope e = envelope(comm, buf, count, datatype, source, tag, true);
  auto made = request_of(e, Request::Kind::kReceive);
  start_receive(*made, e);
  *request = add_request(std::move(made));
}
void MPI_Recv_init_c(void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                     MPI_Request* request) {
  const Envelope e = envelope(comm, buf, count, datatype, source, tag, true);
  auto made = request_of(e, Request::Kind::kReceive);
  made->active = false;
  made->start = [kept = KeptEnvelope(e)](Request& started) { start_receive(started, kept); };
  *request = add_request(std::move(made));
}
int MPI_Mrecv_c(void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message, MPI_Status* status) {
  return on(comm_of_message(message), __func__, [&] {
    const auto [e, id] = matched(buf, count, datatype, message);
    receive(e, status, id);
  });
}
int MPI_Imrecv_c(void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message, MPI_Request* request) {
  return on(comm_of_message(message), __func__, [&] {
    const auto [e, id] = matched(buf, count, datatype, message);
    auto made = request_of(e, Request::Kind::kReceive);
    start_receive(*made, e, id);
    *request = add_request(std::move(made));
  });
}
void MPI_Sendrecv_c(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                    void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                    MPI_Status* status) {
  send_and_receive(envelope(comm, sendbuf, sendcount, sendtype, dest, sendtag, false),
                   envelope(comm, recvbuf, recvcount, recvtype, source, recvtag, true), status);
}
// What is sent is a copy, so the receive may write to the buffer at once.
void MPI_Sendrecv_replace_c(void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int sendtag, int source,
                            int recvtag, MPI_Comm comm, MPI_Status* status) {
  std::shared_ptr<std::byte[]> memory;
  send_and_receive(copied(envelope(comm, buf, count, datatype, dest, sendtag, false), memory),
                   envelope(comm, buf, count, datatype, source, recvtag, true), status);
}
void MPI_Isendrecv_c(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                     void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                     MPI_Request* request) {
  start_both(envelope(comm, sendbuf, sendcount, sendtype, dest, sendtag, false),
             envelope(comm, recvbuf, recvcount, recvtype, source, recvtag, true), nullptr, request);
}
void MPI_Isendrecv_replace_c(void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int sendtag, int source,
                             int recvtag, MPI_Comm comm, MPI_Request* request) {
  std::shared_ptr<std::byte[]> memory;
  const Envelope out = copied(envelope(comm, buf, count, datatype, dest, sendtag, false), memory);
  start_both(out, envelope(comm, buf, count, datatype, source, recvtag, true), memory, request);
}

}  // namespace rondo_mpi::calls
