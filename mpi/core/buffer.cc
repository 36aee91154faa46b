#include "mpi/core/buffer.h"

#include <exception>
#include <list>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "mpi/core/errors.h"
#include "mpi/core/request.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi {
namespace {

// One for all buffers, held for a copy at most. No function of the program runs under it. It is never destroyed: a
// program may send at exit.
std::mutex& buffer_mutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
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

}  // namespace

void attach(Buffer& buffer, void* data, MPI_Count bytes) {
  std::lock_guard lock(buffer_mutex());
  require(!buffer.attached, MPI_ERR_BUFFER, "a buffer is attached already");
  buffer.data = data;
  buffer.bytes = bytes;
  buffer.attached = true;
}

// Waits without the mutex: another thread may have to send before the receivers come to these messages.
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

MPI_Request start_flush(Buffer& buffer, const std::shared_ptr<Comm>& comm) {
  auto request = make_request(Request::Kind::kCollective, comm);
  auto kept = sent_by(buffer);
  for (const Buffer::Sent& sent : kept) {
    if (sent.work.valid()) request->also.push_back(sent.work);
  }
  request->finish = [kept = std::move(kept)] {};
  return add_request(std::move(request));
}

void detach(Buffer& buffer, void* address, MPI_Count* bytes) {
  flush(buffer);
  std::lock_guard lock(buffer_mutex());
  *static_cast<void**>(address) = buffer.data;
  *bytes = buffer.bytes;
  buffer.data = nullptr;
  buffer.bytes = 0;
  buffer.attached = false;
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

}  // namespace rondo_mpi
