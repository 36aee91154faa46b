// Messages: MPI_Send and its kin, probes, buffers. The engine matches by source and tag in the order of sends of each
// pair, which is MPI's order (MPI-4, 3.5). A blocking call makes progress on its own thread. After a nonblocking one
// the thread that waits does, or the engine's thread while none waits. The request owns what the call keeps: packed
// data, the datatype, the communicator.

#include <algorithm>
#include <exception>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/request.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

using namespace rondo_mpi;

namespace {

// Ready sends are standard ones: the engine gains nothing by a receive that is there already.
enum class Mode { kStandard, kSynchronous, kBuffered };

// One message's arguments, checked. A message is bytes to the engine. It does not own the communicator, which the call
// holds.
struct Envelope {
  Comm* comm;  // the call's (errors.h)
  std::shared_ptr<const Type> type;
  void* data;
  MPI_Count count;  // elements of `type`
  int peer;         // rank of the communicator, MPI_PROC_NULL, or for receives MPI_ANY_SOURCE
  int tag;          // MPI_TAG_UB is the largest int, so none is too large

  bool nobody() const { return peer == MPI_PROC_NULL; }
  MPI_Count bytes() const { return product(count, type->size); }
};
// For a request, which may outlive the communicator's handle.
struct KeptEnvelope : Envelope {
  explicit KeptEnvelope(const Envelope& e) : Envelope(e), keeps_comm(e.comm->shared_from_this()) {}
  std::shared_ptr<const Comm> keeps_comm;
};

[[noreturn, gnu::cold]] void refuse_peer(const Comm& comm, int peer) {
  fail(MPI_ERR_RANK,
       "the communicator has ranks 0 to " + std::to_string(comm.peers() - 1) + ", and no rank " + std::to_string(peer));
}
void check_peer(const Comm& comm, int peer, bool any) {
  if (peer >= 0 && peer < comm.peers()) return;
  if (peer != MPI_PROC_NULL && !(any && peer == MPI_ANY_SOURCE)) refuse_peer(comm, peer);
}
[[noreturn, gnu::cold]] void refuse_negative(int code, const char* what, int64_t value) {
  fail(code, std::string(what) + std::to_string(value) + ", negative");
}
void check_tag(int tag, bool any) {
  if (tag < 0 && !(any && tag == MPI_ANY_TAG)) refuse_negative(MPI_ERR_TAG, "the tag is ", tag);
}

// Throws MPI's error for each argument before anything is sent. They are checked also where the peer is MPI_PROC_NULL.
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

// The status of a receive from MPI_PROC_NULL (MPI-4, 3.11).
const Outcome kNobody{MPI_PROC_NULL, MPI_ANY_TAG, 0};

// The bytes of a message that is sent or received: where it lies, or memory beside it.
struct PackedData {
  explicit PackedData(const Envelope& e)
      : beside(e.type->dense || e.count == 0 ? nullptr : std::make_shared<std::byte[]>(static_cast<size_t>(e.bytes()))),
        data(beside == nullptr ? e.data : beside.get()) {}
  std::shared_ptr<std::byte[]> beside;
  void* data;
};
// For what is sent: memory beside is filled with it.
PackedData packed(const Envelope& e) {
  PackedData memory(e);
  if (memory.beside != nullptr) pack(*e.type, e.data, e.count, memory.beside.get());
  return memory;
}
// bytes: those that came, which may be fewer than the buffer has. Part of an element is stored, and then is an error.
void unpack_from(const Envelope& e, const PackedData& memory, MPI_Count bytes) {
  if (memory.beside == nullptr) return;
  unpack(*e.type, e.data, e.count, memory.beside.get(), bytes);
  require(elements_in(*e.type, bytes) != MPI_UNDEFINED, MPI_ERR_TYPE, "the message ends inside of an element");
}

// --- Buffered sends: a copy goes, and the buffer that the program attached only bounds how much is under way.

// One for all buffers, held for a copy at most. No function of the program runs under it. It is never destroyed: a
// program may send at exit.
std::mutex& buffer_mutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}

// MPI allows one buffer at a time for each of these owners.
void attach(Buffer& buffer, void* data, MPI_Count bytes) {
  std::lock_guard lock(buffer_mutex());
  require(!buffer.attached, MPI_ERR_BUFFER, "a buffer is attached already");
  buffer.data = data;
  buffer.bytes = bytes;
  buffer.attached = true;
}

std::list<Buffer::Sent> sent_by(const Buffer& buffer) {
  std::lock_guard lock(buffer_mutex());
  return buffer.sent;
}

// Forgets what has been sent, or has failed. A look at a message makes progress, and so may call a function of the
// program: it comes without the mutex, and the messages that are over end without it.
void forget_sent(Buffer& buffer) {
  const std::list<Buffer::Sent> looked = sent_by(buffer);
  std::set<const void*> over;
  for (const Buffer::Sent& one : looked) {
    if (one.work.valid() && one.work.done()) over.insert(one.data.get());
  }
  std::list<Buffer::Sent> forgotten;
  std::lock_guard lock(buffer_mutex());
  for (auto one = buffer.sent.begin(); one != buffer.sent.end();) {
    const auto here = one++;
    if (over.contains(here->data.get())) forgotten.splice(forgotten.end(), buffer.sent, here);
  }
}

// Waits without the mutex: another thread may have to send before the receivers come to these messages. Throws the last
// failure, after all have ended.
void flush(Buffer& buffer) {
  std::exception_ptr failure;
  for (Buffer::Sent& one : sent_by(buffer)) {
    if (!one.work.valid()) continue;  // another thread is about to send it
    try {
      one.work.wait();
    } catch (const rondo::Exception&) {
      failure = std::current_exception();
    }
  }
  forget_sent(buffer);
  if (failure) std::rethrow_exception(failure);
}

Buffer& session_buffer(MPI_Session session) { return object(world().sessions, session).buffer; }

// A request that is over when what the buffer has now has been sent.
MPI_Request start_flush(Buffer& buffer, const std::shared_ptr<Comm>& comm) {
  auto request = make_request(Request::Kind::kCollective, comm);
  auto kept = sent_by(buffer);
  for (const Buffer::Sent& sent : kept) {
    if (sent.work.valid()) request->also.push_back(sent.work);
  }
  request->finish = [kept = std::move(kept)] {};
  return add_request(std::move(request));
}

// Waits until all buffered messages have gone: the program may free the memory then.
void detach(Buffer& buffer, void* address, MPI_Count* bytes) {
  flush(buffer);
  std::lock_guard lock(buffer_mutex());
  *static_cast<void**>(address) = buffer.data;
  *bytes = buffer.bytes;
  buffer.data = nullptr;
  buffer.bytes = 0;
  buffer.attached = false;
}

// That of the communicator, else of its session, else of the process. The call holds the communicator.
Buffer& buffer_of(Comm& comm) {
  std::lock_guard lock(buffer_mutex());
  if (comm.buffer.attached) return comm.buffer;
  return comm.session != nullptr && comm.session->buffer.attached ? comm.session->buffer : world().buffer;
}

// The program's buffer bounds what is under way, though the copy lies elsewhere: what MPI calls an error must be one
// here. MPI_BUFFER_AUTOMATIC has no bound. Until the message starts its `work` is empty, which others leave alone.
std::list<Buffer::Sent>::iterator take_room(Buffer& buffer, const Envelope& e) {
  forget_sent(buffer);
  std::lock_guard lock(buffer_mutex());
  if (buffer.data != MPI_BUFFER_AUTOMATIC) {
    MPI_Count used = sum(e.bytes(), MPI_BSEND_OVERHEAD);
    for (const Buffer::Sent& sent : buffer.sent) used += static_cast<MPI_Count>(sent.data->size()) + MPI_BSEND_OVERHEAD;
    require(used <= buffer.bytes, MPI_ERR_BUFFER, "the attached buffer has no room for the message");
  }
  auto data = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(e.bytes()));
  pack(*e.type, e.data, e.count, data->data());
  return buffer.sent.insert(buffer.sent.end(), {std::move(data), e.comm->engine, {}});
}

// MPI says that the call ends whatever the receiver does (MPI-4, 3.6): nothing is waited for. The engine's start()
// makes progress, and so may call a function of the program: it comes without the mutex.
void send_buffered(const Envelope& e) {
  Buffer& buffer = buffer_of(*e.comm);
  const auto made = take_room(buffer, e);
  const auto data = made->data;
  rondo::Work work;
  try {
    work = e.comm->engine->start(call_of(e, rondo::MessageKind::kSend, const_cast<std::byte*>(data->data())));
  } catch (...) {
    std::lock_guard lock(buffer_mutex());
    buffer.sent.erase(made);
    throw;
  }
  {
    std::lock_guard lock(buffer_mutex());
    made->work = work;
  }
  // This share frees data and communicator on the engine's thread.
  if (!work.done()) work.on_end([data, engine = e.comm->engine](const rondo::Error&) {});
}

// --- Sends

// A standard send may return before its receive has begun, as the engine's does: programs must not rely on that.
void send(const Envelope& e, Mode mode) {
  if (e.nobody()) return;
  if (mode == Mode::kBuffered) {
    send_buffered(e);
    return;
  }
  const PackedData memory = packed(e);
  rondo::MessageCall call = call_of(e, rondo::MessageKind::kSend, memory.data);
  call.options.synchronous = mode == Mode::kSynchronous;
  e.comm->engine->run(call);
}

// A channel has its sender as rank 0 and its receiver as rank 1, or this rank alone. Only partitioned messages have a
// channel.
rondo::Work start(const Request& request, const Envelope& e, rondo::MessageCall call) {
  if (request.channel == nullptr) return e.comm->engine->start(call);
  call.peer = call.kind == rondo::MessageKind::kSend ? request.channel->size() - 1 : 0;
  return request.channel->start(call);
}

// The packed copy lives in the request's finish().
void start_send(Request& request, const Envelope& e, Mode mode) {
  if (e.nobody()) return;
  if (mode == Mode::kBuffered) {
    send_buffered(e);
    return;
  }
  const PackedData memory = packed(e);
  rondo::MessageCall call = call_of(e, rondo::MessageKind::kSend, memory.data);
  call.options.synchronous = mode == Mode::kSynchronous;
  request.work = start(request, e, call);
  if (memory.beside != nullptr) request.finish = [kept = memory.beside] {};
}

// The request stays where it is until the end: the function that unpacks refers to it.
void start_receive(Request& request, const Envelope& e, uint64_t matched = 0) {
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

int send_call(const char* call, const void* data, MPI_Count count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              Mode mode) {
  return on(comm, call, [&] { send(envelope(comm, data, count, type, peer, tag, false), mode); });
}

int isend_call(const char* call, const void* data, MPI_Count count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
               MPI_Request* request, Mode mode) {
  return on(comm, call, [&] {
    const Envelope e = envelope(comm, data, count, type, peer, tag, false);
    auto made = request_of(e, Request::Kind::kSend);
    start_send(*made, e, mode);
    *request = add_request(std::move(made));
  });
}

// A persistent request packs at each MPI_Start(), since the program may have changed the data.
int send_init_call(const char* call, const void* data, MPI_Count count, MPI_Datatype type, int peer, int tag,
                   MPI_Comm comm, MPI_Request* request, Mode mode) {
  return on(comm, call, [&] {
    const Envelope e = envelope(comm, data, count, type, peer, tag, false);
    auto made = request_of(e, Request::Kind::kSend);
    made->persistent = true;
    made->active = false;
    made->start = [kept = KeptEnvelope(e), mode](Request& started) { start_send(started, kept, mode); };
    *request = add_request(std::move(made));
  });
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

// --- Probes

// It checks its arguments as a receive does.
rondo::MessageCall probe_of(const Comm& comm, int source, int tag, rondo::MessageKind kind) {
  check_peer(comm, source, true);
  check_tag(tag, true);
  return {.kind = kind,
          .dtype = rondo::DType::kUint8,
          .peer = source == MPI_ANY_SOURCE ? rondo::kAnySource : comm.engine_rank(source),
          .tag = tag == MPI_ANY_TAG ? rondo::kAnyTag : tag};
}

// What is there at once. From ranks that have freed the communicator nothing comes any more, which is no error of a
// question.
std::optional<rondo::Message> look(Comm& comm, const rondo::MessageCall& probe) {
  try {
    return comm.engine->look(probe);
  } catch (const rondo::Exception& exception) {
    if (exception.code() != rondo::ErrorCode::kPeerLeft) throw;
    return std::nullopt;
  }
}

MPI_Message keep(Comm& comm, const rondo::Message& found) {
  auto message = std::make_shared<MatchedMessage>();
  message->comm = comm.shared_from_this();
  message->matched = found.matched;
  return world().messages.add(std::move(message));
}

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
#define SEND(Name, mode)                                                                                          \
  int MPI_##Name##_c(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) { \
    return send_call(__func__, buf, count, datatype, dest, tag, comm, mode);                                      \
  }
#define START_SEND(Name, function, mode)                                                                        \
  int MPI_##Name##_c(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, \
                     MPI_Request* request) {                                                                    \
    return function(__func__, buf, count, datatype, dest, tag, comm, request, mode);                            \
  }
SEND(Send, Mode::kStandard)
SEND(Ssend, Mode::kSynchronous)
SEND(Rsend, Mode::kStandard)
SEND(Bsend, Mode::kBuffered)
START_SEND(Isend, isend_call, Mode::kStandard)
START_SEND(Issend, isend_call, Mode::kSynchronous)
START_SEND(Irsend, isend_call, Mode::kStandard)
START_SEND(Ibsend, isend_call, Mode::kBuffered)
START_SEND(Send_init, send_init_call, Mode::kStandard)
START_SEND(Ssend_init, send_init_call, Mode::kSynchronous)
START_SEND(Rsend_init, send_init_call, Mode::kStandard)
START_SEND(Bsend_init, send_init_call, Mode::kBuffered)

int MPI_Recv_c(void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
               MPI_Status* status) {
  return on(comm, __func__, [&] { receive(envelope(comm, buf, count, datatype, source, tag, true), status); });
}
// The buffer is the engine's until the request is over.
int MPI_Irecv_c(void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                MPI_Request* request) {
  return on(comm, __func__, [&] {
    const Envelope e = envelope(comm, buf, count, datatype, source, tag, true);
    auto made = request_of(e, Request::Kind::kReceive);
    start_receive(*made, e);
    *request = add_request(std::move(made));
  });
}
int MPI_Recv_init_c(void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                    MPI_Request* request) {
  return on(comm, __func__, [&] {
    const Envelope e = envelope(comm, buf, count, datatype, source, tag, true);
    auto made = request_of(e, Request::Kind::kReceive);
    made->persistent = true;
    made->active = false;
    made->start = [kept = KeptEnvelope(e)](Request& started) { start_receive(started, kept); };
    *request = add_request(std::move(made));
  });
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
int MPI_Sendrecv_c(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                   void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                   MPI_Status* status) {
  return on(comm, __func__, [&] {
    send_and_receive(envelope(comm, sendbuf, sendcount, sendtype, dest, sendtag, false),
                     envelope(comm, recvbuf, recvcount, recvtype, source, recvtag, true), status);
  });
}
// What is sent is a copy, so the receive may write to the buffer at once.
int MPI_Sendrecv_replace_c(void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int sendtag, int source,
                           int recvtag, MPI_Comm comm, MPI_Status* status) {
  return on(comm, __func__, [&] {
    std::shared_ptr<std::byte[]> memory;
    send_and_receive(copied(envelope(comm, buf, count, datatype, dest, sendtag, false), memory),
                     envelope(comm, buf, count, datatype, source, recvtag, true), status);
  });
}
int MPI_Isendrecv_c(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                    void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                    MPI_Request* request) {
  return on(comm, __func__, [&] {
    start_both(envelope(comm, sendbuf, sendcount, sendtype, dest, sendtag, false),
               envelope(comm, recvbuf, recvcount, recvtype, source, recvtag, true), nullptr, request);
  });
}
int MPI_Isendrecv_replace_c(void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int sendtag, int source,
                            int recvtag, MPI_Comm comm, MPI_Request* request) {
  return on(comm, __func__, [&] {
    std::shared_ptr<std::byte[]> memory;
    const Envelope out = copied(envelope(comm, buf, count, datatype, dest, sendtag, false), memory);
    start_both(out, envelope(comm, buf, count, datatype, source, recvtag, true), memory, request);
  });
}

// The message stays for any receive of any thread; MPI_Mprobe() takes it out of what others see.
int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status) {
  return on(comm, __func__, [&] {
    Comm& of = comm_of(comm);
    const auto call = probe_of(of, source, tag, rondo::MessageKind::kProbe);
    set_status(status, source == MPI_PROC_NULL ? kNobody : outcome_of(of, of.engine->run(call)));
  });
}
// It makes progress, so a program may poll by it.
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  return on(comm, __func__, [&] {
    Comm& of = comm_of(comm);
    const auto call = probe_of(of, source, tag, rondo::MessageKind::kProbe);
    const auto found = source == MPI_PROC_NULL ? std::nullopt : look(of, call);
    *flag = found.has_value() || source == MPI_PROC_NULL;
    if (*flag) set_status(status, found ? outcome_of(of, *found) : kNobody);
  });
}
// No other call sees the message from then on. MPI_Mrecv() and MPI_Imrecv() take it, also on another thread.
int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
  return on(comm, __func__, [&] {
    Comm& of = comm_of(comm);
    const auto call = probe_of(of, source, tag, rondo::MessageKind::kMatchedProbe);
    *message = MPI_MESSAGE_NO_PROC;
    if (source == MPI_PROC_NULL) return set_status(status, kNobody);
    const rondo::Message found = of.engine->run(call);
    *message = keep(of, found);
    set_status(status, outcome_of(of, found));
  });
}
// *message is MPI_MESSAGE_NULL where nothing was found.
int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
  return on(comm, __func__, [&] {
    Comm& of = comm_of(comm);
    const auto call = probe_of(of, source, tag, rondo::MessageKind::kMatchedProbe);
    *flag = 1;
    *message = MPI_MESSAGE_NO_PROC;
    if (source == MPI_PROC_NULL) return set_status(status, kNobody);
    const auto found = look(of, call);
    *flag = found.has_value();
    *message = found ? keep(of, *found) : MPI_MESSAGE_NULL;
    if (found) set_status(status, outcome_of(of, *found));
  });
}

// The memory is never written: see Buffer. Detaching it waits for all messages that were sent from it.
int MPI_Buffer_attach_c(void* buffer, MPI_Count size) {
  return run(__func__, [&] { attach(world().buffer, buffer, size); });
}
int MPI_Buffer_detach_c(void* buffer_addr, MPI_Count* size) {
  return run(__func__, [&] { detach(world().buffer, buffer_addr, size); });
}
int MPI_Comm_attach_buffer_c(MPI_Comm comm, void* buffer, MPI_Count size) {
  return on(comm, __func__, [&] { attach(comm_of(comm).buffer, buffer, size); });
}
int MPI_Comm_detach_buffer_c(MPI_Comm comm, void* buffer_addr, MPI_Count* size) {
  return on(comm, __func__, [&] { detach(comm_of(comm).buffer, buffer_addr, size); });
}
int MPI_Session_attach_buffer_c(MPI_Session session, void* buffer, MPI_Count size) {
  return on_session(session, __func__, [&] { attach(session_buffer(session), buffer, size); });
}
int MPI_Session_detach_buffer_c(MPI_Session session, void* buffer_addr, MPI_Count* size) {
  return on_session(session, __func__, [&] { detach(session_buffer(session), buffer_addr, size); });
}

int MPI_Buffer_flush(void) {
  return run(__func__, [&] { flush(world().buffer); });
}
// The request belongs to MPI_COMM_SELF, whose handler gets its error.
int MPI_Buffer_iflush(MPI_Request* request) {
  return run(__func__, [&] { *request = start_flush(world().buffer, world().self); });
}
int MPI_Comm_flush_buffer(MPI_Comm comm) {
  return on(comm, __func__, [&] { flush(comm_of(comm).buffer); });
}
int MPI_Comm_iflush_buffer(MPI_Comm comm, MPI_Request* request) {
  return on(comm, __func__, [&] {
    Comm& of = comm_of(comm);
    *request = start_flush(of.buffer, of.shared_from_this());
  });
}
int MPI_Session_flush_buffer(MPI_Session session) {
  return on_session(session, __func__, [&] { flush(session_buffer(session)); });
}
int MPI_Session_iflush_buffer(MPI_Session session, MPI_Request* request) {
  return on_session(session, __func__, [&] { *request = start_flush(session_buffer(session), world().self); });
}

// --- Partitioned messages: one message, which goes when all of its parts are ready

namespace {
// Shared: the thread that waits for it may end it while another says that the last part is ready.
std::shared_ptr<Request> partitioned(MPI_Request request) {
  auto of = world().requests.share(request);
  require(of != nullptr && of->partitions > 0, MPI_ERR_REQUEST, "the request is null, freed, or not partitioned");
  return of;
}
// The thread that readies the last part sends the whole message. Any thread may ready a part. `unready` counts down
// from parts + 1: the last part leaves 1, and 0 says that the send has started.
void make_ready(Request& of, int partition) {
  require(partition >= 0 && partition < of.partitions, MPI_ERR_ARG, "there is no such partition");
  require(of.active && of.unready > 1, MPI_ERR_REQUEST, "the request is not active, or all of its parts are ready");
  if (of.unready.fetch_sub(1) > 2) return;
  try {
    of.ready(of);
  } catch (...) {  // the request's error, for the thread that waits for it
    of.finish = [why = std::current_exception()] { std::rethrow_exception(why); };
  }
  // The last step to 0 comes when the send has started: complete() and over() look for that.
  of.unready = 0;
  of.unready.notify_all();
  ends().tell();
}
// The channel of a message between this rank and itself: the second of the two calls for it takes what the first has
// made. It is made before the look, which must be one step: two threads may make the two calls.
std::shared_ptr<rondo::Communicator> channel_to_self(Comm& comm, bool receives, int tag, uint64_t series) {
  const int own[] = {comm.engine->rank()};
  std::shared_ptr<rondo::Communicator> channel = open_channel(comm, own, series).engine, unused;
  comm.half_messages.with([&](std::vector<Comm::HalfMessage>& all) {
    const auto other = std::find_if(all.begin(), all.end(), [&](const Comm::HalfMessage& half) {
      return half.tag == tag && half.receives != receives;
    });
    if (other == all.end()) {
      all.push_back({tag, receives, channel});
    } else {
      unused = std::exchange(channel, std::move(other->channel));  // ends after the lock
      all.erase(other);
    }
  });
  return channel;
}
// Both ranks make a channel for each request, in the order of their calls for one tag, which is how MPI matches them
// (MPI-4, chapter 4). So no other message meets it, in whatever order they start it.
int partitioned_call(const char* call, void* data, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                     int tag, MPI_Comm comm, MPI_Request* request, Request::Kind kind) {
  return on(comm, call, [&] {
    require(partitions > 0, MPI_ERR_ARG, "there are no partitions");
    const bool receives = kind == Request::Kind::kReceive;
    const Envelope e = envelope(comm, data, product(count, partitions), type, peer, tag, false);  // no wildcards
    auto made = request_of(e, kind);
    const int own = e.comm->engine->rank(), other = e.nobody() ? own : e.comm->engine_rank(peer);
    const uint64_t series = static_cast<uint64_t>(Series::kPartitioned) + static_cast<uint64_t>(tag);
    const int ranks[] = {receives ? other : own, receives ? own : other};
    if (!e.nobody()) {
      made->channel =
          own == other ? channel_to_self(*e.comm, receives, tag, series) : open_channel(*e.comm, ranks, series).engine;
    }
    made->persistent = true;
    made->active = false;
    made->partitions = partitions;
    if (receives) {
      made->start = [kept = KeptEnvelope(e)](Request& started) { start_receive(started, kept); };
    } else {
      made->start = [](Request& started) { started.unready = started.partitions + 1; };
      made->ready = [kept = KeptEnvelope(e)](Request& ready) { start_send(ready, kept, Mode::kStandard); };
    }
    *request = add_request(std::move(made));
  });
}
}  // namespace

// The parts' counts may differ on both sides, since all go as one message.
int MPI_Psend_init(const void* buf, int partitions, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                   MPI_Comm comm, MPI_Info, MPI_Request* request) {
  return partitioned_call(__func__, const_cast<void*>(buf), partitions, count, datatype, dest, tag, comm, request,
                          Request::Kind::kSend);
}
int MPI_Precv_init(void* buf, int partitions, MPI_Count count, MPI_Datatype datatype, int source, int tag,
                   MPI_Comm comm, MPI_Info, MPI_Request* request) {
  return partitioned_call(__func__, buf, partitions, count, datatype, source, tag, comm, request,
                          Request::Kind::kReceive);
}
int MPI_Pready(int partition, MPI_Request request) { return MPI_Pready_list(1, &partition, request); }
// A partition may be made ready once; several threads may do so for one request.
int MPI_Pready_range(int partition_low, int partition_high, MPI_Request request) {
  return run(__func__, [&] {
    for (int i = partition_low; i <= partition_high; ++i) make_ready(*partitioned(request), i);
  });
}
int MPI_Pready_list(int length, const int array_of_partitions[], MPI_Request request) {
  return run(__func__, [&] {
    for (int i = 0; i < length; ++i) make_ready(*partitioned(request), array_of_partitions[i]);
  });
}
// Parts come together, so it tells of all at once. Several threads may ask, also while another one waits.
int MPI_Parrived(MPI_Request request, int partition, int* flag) {
  return run(__func__, [&] {
    const auto of = partitioned(request);
    require(partition >= 0 && partition < of->partitions, MPI_ERR_ARG, "there is no such partition");
    *flag = finished(*of);
  });
}
