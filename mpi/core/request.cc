#include "mpi/core/request.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <utility>

#include "mpi/core/errors.h"
#include "mpi/core/world.h"

namespace rondo_mpi {

#ifdef RONDO_MPI_FACE_OPENMPI
MPI_Count bytes_of(const MPI_Status& status) { return static_cast<MPI_Count>(status._ucount); }
bool cancelled(const MPI_Status& status) { return status._cancelled != 0; }
void set_bytes(MPI_Status& status, MPI_Count bytes) { status._ucount = static_cast<size_t>(bytes); }
void set_cancelled(MPI_Status& status, bool flag) { status._cancelled = flag ? 1 : 0; }
#else
// Bytes take 62 bits: 32 and 30, beside the mark of a cancelled request.
#ifdef RONDO_MPI_FACE_MPICH
#define LOW(status) (status).count_lo
#define HIGH(status) (status).count_hi_and_cancelled
#elif defined(RONDO_MPI_FACE_STANDARD)
#define LOW(status) (status).MPI_internal[0]
#define HIGH(status) (status).MPI_internal[1]
#else
#define LOW(status) (status).internal[0]
#define HIGH(status) (status).internal[1]
#endif

MPI_Count bytes_of(const MPI_Status& status) {
  return static_cast<MPI_Count>(static_cast<uint32_t>(LOW(status))) |
         static_cast<MPI_Count>(static_cast<uint32_t>(HIGH(status)) >> 1) << 32;
}
bool cancelled(const MPI_Status& status) { return (HIGH(status) & 1) != 0; }
void set_bytes(MPI_Status& status, MPI_Count bytes) {
  LOW(status) = static_cast<int>(static_cast<uint32_t>(bytes));
  HIGH(status) = static_cast<int>(static_cast<uint32_t>(bytes >> 32) << 1) | (HIGH(status) & 1);
}
void set_cancelled(MPI_Status& status, bool flag) { HIGH(status) = (HIGH(status) & ~1) | (flag ? 1 : 0); }
#endif

void set_status(MPI_Status* status, const Outcome& outcome) {
  if (status == MPI_STATUS_IGNORE) return;
  status->MPI_SOURCE = outcome.source;
  status->MPI_TAG = outcome.tag;
  set_bytes(*status, outcome.bytes);
  set_cancelled(*status, outcome.cancelled);
}
void set_status_error(MPI_Status* status, int error) {
  if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = error;
}

// The engine's ranks of the other group become ranks of that group.
Outcome outcome_of(const Comm& comm, const rondo::Message& message) {
  return {comm.peer_of(message.peer), message.tag, static_cast<MPI_Count>(message.bytes)};
}

namespace {

// What is under way for it.
std::vector<rondo::Work> works_of(const Request& request) {
  std::vector<rondo::Work> works = request.also;
  if (request.work.valid()) works.push_back(request.work);
  return works;
}

// Held of a partitioned request alone: no other has a second thread.
std::unique_lock<std::mutex> beside_parrived(Request& request) {
  return request.partitions > 0 ? std::unique_lock(request.arrival) : std::unique_lock<std::mutex>();
}

// What a partitioned request has under way. A copy, to look at or wait for without the mutex: either makes progress,
// and so may call a function of the program. Empty: it has been ended, or is not active.
struct UnderWay {
  rondo::Work work;
  uint64_t round = 0;
};
UnderWay under_way(Request& request) {
  const auto lock = beside_parrived(request);
  return {request.active ? request.work : rondo::Work(), request.round};
}

// Its works are over, or this waits for them. All that goes wrong ends in outcome.error. A second call does nothing.
void end(Request& request) {
  Outcome& outcome = request.outcome;
  try {
    for (rondo::Work& work : request.also) work.wait();
    if (request.work.valid()) {
      request.work.wait();
      if (request.kind == Request::Kind::kReceive && request.channel == nullptr) {
        outcome = outcome_of(*request.comm, request.work.message());
      } else if (request.kind == Request::Kind::kReceive) {
        outcome.bytes = static_cast<MPI_Count>(request.work.message().bytes);
      }
    }
    if (request.finish) request.finish();
  } catch (const rondo::Exception& exception) {
    // The sender may have freed the communicator before: then nothing came, and nothing will.
    const bool never_sent = exception.code() == rondo::ErrorCode::kPeerLeft && request.kind == Request::Kind::kReceive;
    if (exception.code() == rondo::ErrorCode::kCancelled || (request.unwanted && never_sent)) {
      outcome.cancelled = true;
    } else {
      if (exception.code() == rondo::ErrorCode::kTruncated && request.kind == Request::Kind::kReceive) {
        const Outcome came = outcome_of(*request.comm, request.work.message());
        if (!request.channel) outcome.source = came.source, outcome.tag = came.tag;
      } else if (!exception.error().ranks.empty() && request.kind == Request::Kind::kReceive && !request.channel) {
        outcome.source = request.comm->peer_of(exception.error().ranks[0]);
      }
      outcome.error = remember(failure_of(exception.error()));
    }
  } catch (...) {
    outcome.error = remember(caught());
  }
  request.work = {};
  request.also.clear();
  request.watched = false;
  request.finish = nullptr;
  ++request.round;
}

}  // namespace

void activate(Request& request) {
  const auto lock = beside_parrived(request);
  request.active = true;
}

// `unready` is read before `work`: the thread that sends stores them in the other order.
bool over(Request& request) {
  if (request.kind == Request::Kind::kGeneral) return !request.active || request.complete;
  if (request.partitions > 0) {
    if (request.unready > 0) return false;
    const rondo::Work work = under_way(request).work;
    return !work.valid() || work.done();
  }
  if (!request.active) return true;
  return (!request.work.valid() || request.work.done()) &&
         std::all_of(request.also.begin(), request.also.end(), [](const rondo::Work& work) { return work.done(); });
}

// All that goes wrong ends in outcome.error. The caller decides whose error handler is called.
void complete(Request& request) {
  if (!request.active) return;
  // Another thread of the program ends these two.
  if (request.kind == Request::Kind::kGeneral) request.complete.wait(false);
  for (int unready = request.unready; unready > 0; unready = request.unready) request.unready.wait(unready);
  if (rondo::Work work = request.partitions > 0 ? under_way(request).work : rondo::Work(); work.valid()) {
    try {
      work.wait();
    } catch (const rondo::Exception&) {
      // end() throws it once more, and catches it.
    }
  }
  const auto lock = beside_parrived(request);
  request.active = false;  // before end(): a function of the program may throw what that does not catch
  if (request.kind != Request::Kind::kGeneral) end(request);
}

// A generalized request stays as it is: complete() would not call its functions anyway. The thread that waits may have
// ended the round that was over here, and started another one.
bool finished(Request& request) {
  const uint64_t round = request.partitions > 0 ? under_way(request).round : request.round;
  if (!over(request)) return false;
  if (request.kind == Request::Kind::kGeneral) return true;
  const auto lock = beside_parrived(request);
  if (request.active && request.round == round) end(request);
  return true;
}

Ends& ends() {
  static Ends ends;
  return ends;
}

// Each Work's end is counted, so the thread looks at the request again after each.
// A send whose parts are not all ready has none yet: make_ready() tells.
void Ends::watch(Request& request) {
  std::vector<rondo::Work> works;
  {
    const auto lock = beside_parrived(request);
    if (request.watched || request.unready > 0) return;
    works = works_of(request);
    request.watched = !works.empty();
  }
  for (rondo::Work& work : works) work.on_end([this](const rondo::Error&) { tell(); });
}

// The last Work that ends finishes the request, on the engine's thread. complete() does not wait there, for all of it
// is over. Its function may unpack, or fold by a function of the program.
void release(const std::shared_ptr<Request>& request) {
  if (request->kind == Request::Kind::kGeneral) return;
  if (!request->active || over(*request)) return complete(*request);
  for (rondo::Work& work : works_of(*request)) {
    work.on_end([request](const rondo::Error&) {
      if (over(*request)) complete(*request);
    });
  }
}

namespace {

// What a thread keeps of the requests that it has ended, for those that it makes: as many as most programs have in
// flight.
struct EndedRequests {
  static constexpr size_t kMost = 256;
  std::array<std::shared_ptr<Request>, kMost> requests;
  std::array<MPI_Request, kMost> handles;  // of no object
  size_t request_count = 0, handle_count = 0;
};

// A pointer, so that a thread that makes no request pays for none.
thread_local EndedRequests* ended = nullptr;
thread_local bool thread_over = false;

// A thread's handles go back to the table at its end. Else a program that starts threads again and again would run out.
struct AtThreadEnd {
  ~AtThreadEnd() {
    EndedRequests* const last = std::exchange(ended, nullptr);
    thread_over = true;  // functions of atexit() may still call MPI
    for (size_t i = 0; i < last->handle_count; ++i) world().requests.give_back(last->handles[i]);
    delete last;
  }
};

// nullptr: this thread keeps none.
EndedRequests* ended_requests() {
  if (ended != nullptr || thread_over) return ended;
  ended = new (std::nothrow) EndedRequests;
  if (ended == nullptr) return nullptr;
  static thread_local const AtThreadEnd at_end;
  return ended;
}

// Whether it can be another: complete() has set back what only some have.
bool can_be_kept(const std::shared_ptr<Request>& request) {
  return request.use_count() == 1 && request->kind != Request::Kind::kGeneral && !request->persistent();
}

}  // namespace

std::shared_ptr<Request> make_request(Request::Kind kind, std::shared_ptr<Comm> comm) {
  EndedRequests* const kept = ended_requests();
  std::shared_ptr<Request> made = kept != nullptr && kept->request_count > 0
                                      ? std::move(kept->requests[--kept->request_count])
                                      : std::make_shared<Request>();
  made->kind = kind;
  made->comm = std::move(comm);
  return made;
}

// A handle that this thread has kept needs no lock.
MPI_Request add_request(std::shared_ptr<Request> request) {
  EndedRequests* const kept = ended_requests();
  if (kept == nullptr || kept->handle_count == 0) {
    try {
      return world().requests.add(request);
    } catch (...) {
      release(request);  // what is under way keeps its memory
      throw;
    }
  }
  const MPI_Request handle = kept->handles[--kept->handle_count];
  world().requests.put(handle, std::move(request));
  return handle;
}

// Keeps request and handle for the next ones of this thread. An allocation and a lock a message would show in the rate
// of small messages.
void end_request(MPI_Request* handle) {
  EndedRequests* const kept = ended_requests();
  std::shared_ptr<Request> request = world().requests.take_out(*handle);
  if (kept == nullptr || kept->handle_count == EndedRequests::kMost) {
    world().requests.give_back(*handle);
  } else {
    kept->handles[kept->handle_count++] = *handle;
  }
  *handle = MPI_REQUEST_NULL;
  if (kept == nullptr || kept->request_count == EndedRequests::kMost || !can_be_kept(request)) return;
  request->comm.reset();
  request->outcome = {};
  request->active = true;
  request->unwanted = false;
  kept->requests[kept->request_count++] = std::move(request);
}

}  // namespace rondo_mpi
