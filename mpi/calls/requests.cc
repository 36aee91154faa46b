// Requests: waiting for them, testing, cancelling; persistent and generalized ones. MPI lets one thread at a time
// complete or start a request, so a raw pointer to it is good during these calls. A call that completes a request ends
// its handle and makes it MPI_REQUEST_NULL, unless it is persistent. Each look at a request makes progress on it.

#include <algorithm>
#include <thread>
#include <vector>

#include "mpi/core/errors.h"
#include "mpi/core/request.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// The status of no request.
void set_empty(MPI_Status* status) {
  set_status(status, {MPI_ANY_SOURCE, MPI_ANY_TAG, 0});
  set_status_error(status, MPI_SUCCESS);
}

// The request of a handle; nullptr for the null handle. It is good during the call, since MPI forbids two threads to
// complete one request.
Request* find(MPI_Request handle) {
  if (handle == MPI_REQUEST_NULL) return nullptr;
  Request* const found = world().requests.find(handle);
  require(found != nullptr, MPI_ERR_REQUEST, "the request is not valid: freed, or of another kind");
  return found;
}

std::shared_ptr<Comm> comm_of_request(const Request* found) { return found == nullptr ? nullptr : found->comm; }

// Runs function(owner). An error goes to the handler of `owner`, the communicator of a request that has failed; the
// function leaves it null for another error, which goes to that of the first request that has one.
template <typename Function>
int on_requests(int count, const MPI_Request handles[], const char* call, const Function& function) {
  std::shared_ptr<Comm> owner;
  try {
    function(owner);
    return MPI_SUCCESS;
  } catch (...) {
    for (int i = 0; i < count && owner == nullptr; ++i) {
      owner = comm_of_request(world().requests.find(handles[i]));
    }
    return report(call, owner, caught());
  }
}

// Fills the status of a request that is over; returns its error. The query function of a generalized request fills the
// status. MPI_ERROR of the program's stays as it was.
int tell(Request& request, MPI_Status* status) {
  if (request.kind == Request::Kind::kGeneral) {
    MPI_Status own{};
    set_empty(&own);
    const int error = request.query(request.state, &own);
    if (status != MPI_STATUS_IGNORE) {
      const int before = status->MPI_ERROR;
      *status = own;
      status->MPI_ERROR = before;
    }
    return error;
  }
  set_status(status, request.outcome);
  return request.outcome.error;
}

// Finishes one that is over, and ends its handle unless it is persistent; returns its error, of which it is the owner
// if that is still null. The order is MPI's for generalized requests: query, then free. Their free function is called
// here, or by note() where the handle was freed before.
int end(MPI_Request* handle, Request& request, MPI_Status* status, std::shared_ptr<Comm>& owner) {
  complete(request);
  int error = tell(request, status);
  if (error != MPI_SUCCESS && owner == nullptr) owner = comm_of_request(&request);
  if (request.persistent()) {
    request.outcome = {};  // a second wait finds an inactive request
    return error;
  }
  if (request.kind == Request::Kind::kGeneral) {
    const int freed = request.free(request.state);
    if (error == MPI_SUCCESS) error = freed;
  }
  end_request(handle);
  return error;
}

// Notes that one of the two calls was made for a generalized request; the second of them ends it.
// MPI_Grequest_complete() and MPI_Request_free() may come in either order, from two threads.
void note(Request& request, int call) {
  const int other = call ^ (Request::kCompleted | Request::kFreed);
  if (request.calls.fetch_or(call) != other) return;
  world().requests.remove(request.handle);
  request.free(request.state);
}

// MPI's null and inactive requests: over at once, with an empty status.
bool idle(const Request* request) { return request == nullptr || (request->persistent() && !request->active); }

// The sentence of the last failure is this request's where the codes are equal.
[[noreturn]] void fail_with(int error) {
  if (last_failure().code == error) throw Failure(last_failure());
  fail(error, "the request failed");
}

// Waits until one of several requests may be over: most are within microseconds. It polls 1,000 times, then yields
// 1,000 times, then sleeps until a request ends: the engine's thread makes progress meanwhile, and counts the end.
class Patience {
 public:
  void wait(const std::vector<Request*>& requests) {
    if (++turns_ < 1000) return;
    if (turns_ < 2000) return std::this_thread::yield();
    // Counted before the last look: an end between that and the wait is not missed.
    const uint32_t before = ends().count();
    for (Request* const request : requests) {
      if (!idle(request)) ends().watch(*request);
    }
    if (std::none_of(requests.begin(), requests.end(), [](const auto& r) { return !idle(r) && over(*r); })) {
      ends().wait(before);
    }
  }

 private:
  int turns_ = 0;
};

void check_count(int count) { require(count >= 0, MPI_ERR_COUNT, "the count is negative"); }
// Throws for any handle that is wrong, before one is completed.
std::vector<Request*> find_all(int count, const MPI_Request handles[]) {
  check_count(count);
  std::vector<Request*> found(static_cast<size_t>(count));
  std::transform(handles, handles + count, found.begin(), find);
  return found;
}

// MPI_STATUSES_IGNORE is no array.
MPI_Status* at(MPI_Status statuses[], size_t i) {
  return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
}

// The first that is over; -1: none is. MPI_UNDEFINED: none is active.
int first_over(const std::vector<Request*>& requests) {
  int found = MPI_UNDEFINED;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (idle(requests[i])) continue;
    if (over(*requests[i])) return static_cast<int>(i);
    found = -1;
  }
  return found;
}

// Whether one is over, which *index says. False: *flag says whether none is active.
bool find_over(const std::vector<Request*>& requests, int* index, int* flag, MPI_Status* status) {
  *index = first_over(requests);
  *flag = *index != -1;
  if (*index >= 0) return true;
  if (*flag) set_empty(status);
  *index = MPI_UNDEFINED;
  return false;
}

bool all_over(int count, const MPI_Request handles[]) {
  check_count(count);
  bool all = true;
  for (int i = 0; i < count; ++i) {
    Request* const request = find(handles[i]);
    all = all && (idle(request) || over(*request));
  }
  return all;
}

// Requires that all handles are right. All requests are ended though one has failed: each status has its own error
// then. It waits for one after the other; the engine makes progress on all meanwhile. Errors give MPI_ERR_IN_STATUS,
// and each status its own.
void end_all(int count, MPI_Request handles[], MPI_Status statuses[], std::shared_ptr<Comm>& owner) {
  std::vector<int> errors;  // of all, once one has failed
  for (int i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(i);
    Request* const request = find(handles[i]);
    int error = MPI_SUCCESS;
    if (idle(request)) {
      set_empty(at(statuses, place));
    } else {
      error = end(&handles[i], *request, at(statuses, place), owner);
    }
    if (error != MPI_SUCCESS) errors.resize(static_cast<size_t>(count), MPI_SUCCESS);
    if (!errors.empty()) errors[place] = error;
  }
  const auto bad = std::find_if(errors.begin(), errors.end(), [](int error) { return error != MPI_SUCCESS; });
  if (bad == errors.end()) return;
  if (statuses == MPI_STATUSES_IGNORE) fail_with(*bad);
  for (size_t i = 0; i < errors.size(); ++i) set_status_error(at(statuses, i), errors[i]);
  fail(MPI_ERR_IN_STATUS, last_failure().text);
}

// Ends those that are over; MPI_UNDEFINED: none is active. Statuses lie in the order of the indices, not of the
// requests.
int end_some(const std::vector<Request*>& requests, MPI_Request handles[], int indices[], MPI_Status statuses[],
             int* failed, std::shared_ptr<Comm>& owner) {
  int ended = 0;
  bool active = false;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (idle(requests[i])) continue;
    active = true;
    if (!over(*requests[i])) continue;
    MPI_Status* status = at(statuses, static_cast<size_t>(ended));
    const int error = end(&handles[i], *requests[i], status, owner);
    set_status_error(status, error);
    if (error != MPI_SUCCESS) *failed = error;
    indices[ended++] = static_cast<int>(i);
  }
  return active ? ended : MPI_UNDEFINED;
}

void check_some(int failed, const MPI_Status statuses[]) {
  if (failed == MPI_SUCCESS) return;
  if (statuses == MPI_STATUSES_IGNORE) fail_with(failed);
  fail(MPI_ERR_IN_STATUS, last_failure().text);
}

void check(int error) {
  if (error != MPI_SUCCESS) fail_with(error);
}

// Status without an end: of one that is over it stays.
bool look(Request* request, MPI_Status* status) {
  if (idle(request)) {
    set_empty(status);
    return true;
  }
  if (!finished(*request)) return false;
  tell(*request, status);
  return true;
}

}  // namespace

// MPI_Wait of a null or inactive request returns at once with an empty status (MPI-4, 3.7.3).
int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  return on_requests(1, request, __func__, [&](std::shared_ptr<Comm>& owner) {
    Request* const found = find(*request);
    if (idle(found)) return set_empty(status);
    check(end(request, *found, status, owner));
  });
}
// Where it is not over, status and handle stay as they are.
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  return on_requests(1, request, __func__, [&](std::shared_ptr<Comm>& owner) {
    Request* const found = find(*request);
    *flag = 1;
    if (idle(found)) return set_empty(status);
    if (*flag = over(*found); *flag) check(end(request, *found, status, owner));
  });
}
int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  return on_requests(count, requests, __func__, [&](std::shared_ptr<Comm>& owner) {
    check_count(count);
    // All handles are looked up before any is waited for: a wrong one is an error that ends no request.
    std::for_each(requests, requests + count, find);
    end_all(count, requests, statuses, owner);
  });
}
// All are completed, or none is.
int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  return on_requests(count, requests, __func__, [&](std::shared_ptr<Comm>& owner) {
    *flag = all_over(count, requests);
    if (*flag) end_all(count, requests, statuses, owner);
  });
}
// The lowest index that is over is taken: MPI asks for no fairness here.
int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  return on_requests(count, requests, __func__, [&](std::shared_ptr<Comm>& owner) {
    const auto found = find_all(count, requests);
    for (Patience patience; (*index = first_over(found)) == -1;) patience.wait(found);
    if (*index == MPI_UNDEFINED) return set_empty(status);
    check(end(&requests[*index], *found[static_cast<size_t>(*index)], status, owner));
  });
}
int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  return on_requests(count, requests, __func__, [&](std::shared_ptr<Comm>& owner) {
    const auto found = find_all(count, requests);
    if (!find_over(found, index, flag, status)) return;
    check(end(&requests[*index], *found[static_cast<size_t>(*index)], status, owner));
  });
}
// It waits for one, and then completes all that are over.
int MPI_Waitsome(int incount, MPI_Request requests[], int* outcount, int indices[], MPI_Status statuses[]) {
  return on_requests(incount, requests, __func__, [&](std::shared_ptr<Comm>& owner) {
    const auto found = find_all(incount, requests);
    int failed = MPI_SUCCESS;
    for (Patience patience; (*outcount = end_some(found, requests, indices, statuses, &failed, owner)) == 0;)
      patience.wait(found);
    check_some(failed, statuses);
  });
}
// It makes one pass over all requests.
int MPI_Testsome(int incount, MPI_Request requests[], int* outcount, int indices[], MPI_Status statuses[]) {
  return on_requests(incount, requests, __func__, [&](std::shared_ptr<Comm>& owner) {
    const auto found = find_all(incount, requests);
    int failed = MPI_SUCCESS;
    *outcount = end_some(found, requests, indices, statuses, &failed, owner);
    check_some(failed, statuses);
  });
}

// The request stays, and so does its handle: a later wait gives the same status.
int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  return on_requests(1, &request, __func__, [&](std::shared_ptr<Comm>&) { *flag = look(find(request), status); });
}
void MPI_Request_get_status_all(int count, const MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  *flag = all_over(count, requests);
  for (int i = 0; *flag && i < count; ++i) look(find(requests[i]), at(statuses, static_cast<size_t>(i)));
}
void MPI_Request_get_status_any(int count, const MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  const auto found = find_all(count, requests);
  if (!find_over(found, index, flag, status)) return;
  look(found[static_cast<size_t>(*index)], status);
}
void MPI_Request_get_status_some(int incount, const MPI_Request requests[], int* outcount, int indices[],
                                 MPI_Status statuses[]) {
  const auto found = find_all(incount, requests);
  *outcount = first_over(found) == MPI_UNDEFINED ? MPI_UNDEFINED : 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (idle(found[i]) || !over(*found[i])) continue;
    look(found[i], at(statuses, static_cast<size_t>(*outcount)));
    indices[(*outcount)++] = static_cast<int>(i);
  }
}

// A request that is under way goes on, and ends without a thread that waits: release() keeps it until then.
int MPI_Request_free(MPI_Request* request) {
  return on_requests(1, request, __func__, [&](std::shared_ptr<Comm>&) {
    require(find(*request) != nullptr, MPI_ERR_REQUEST, "the request is null");
    const std::shared_ptr<Request> kept = world().requests.share(*request);
    if (kept->kind == Request::Kind::kGeneral) {
      note(*kept, Request::kFreed);
    } else {
      release(kept);
      world().requests.remove(*request);
    }
    *request = MPI_REQUEST_NULL;
  });
}

// A receive that no message has met ends as cancelled. A send is not taken back, which MPI permits: it ends as usual.
int MPI_Cancel(MPI_Request* request) {
  return on_requests(1, request, __func__, [&](std::shared_ptr<Comm>&) {
    Request* const found = find(*request);
    require(found != nullptr, MPI_ERR_REQUEST, "the request is null");
    if (found->kind == Request::Kind::kGeneral) {
      check(found->cancel(found->state, found->complete));
    } else if (found->active && found->work.valid()) {
      found->unwanted = true;
      found->work.cancel();
    }
  });
}

// The requests before one that is refused have been started.
int MPI_Start(MPI_Request* request) { return calls::MPI_Startall(1, request); }
int MPI_Startall(int count, MPI_Request requests[]) {
  return on_requests(count, requests, __func__, [&](std::shared_ptr<Comm>& owner) {
    for (Request* const found : find_all(count, requests)) {
      require(found != nullptr && found->persistent(), MPI_ERR_REQUEST, "the request is not persistent");
      owner = comm_of_request(found);
      require(!found->active, MPI_ERR_REQUEST, "the request is active already");
      found->unwanted = false;
      found->start(*found);
      activate(*found);
    }
  });
}

// The program makes progress itself, and says so by MPI_Grequest_complete(), from any thread.
void MPI_Grequest_start(MPI_Grequest_query_function* query_fn, MPI_Grequest_free_function* free_fn,
                        MPI_Grequest_cancel_function* cancel_fn, void* extra_state, MPI_Request* request) {
  auto made = make_request(Request::Kind::kGeneral, nullptr);
  made->query = query_fn;
  made->free = free_fn;
  made->cancel = cancel_fn;
  made->state = extra_state;
  *request = add_request(std::move(made));
}
void MPI_Grequest_complete(MPI_Request request) {
  require(find(request) != nullptr, MPI_ERR_REQUEST, "the request is null");
  const std::shared_ptr<Request> found = world().requests.share(request);  // also if another thread ends it now
  require(found->kind == Request::Kind::kGeneral, MPI_ERR_REQUEST, "the request is not a generalized one");
  note(*found, Request::kCompleted);
  found->complete = true;
  found->complete.notify_all();
  ends().tell();
}

// --- Statuses

namespace {
// MPI_UNDEFINED where the bytes are no whole number of the type.
MPI_Count count_of(const MPI_Status& status, const Type& type) {
  const MPI_Count bytes = bytes_of(status);
  if (type.size == 0) return bytes == 0 ? 0 : MPI_UNDEFINED;
  return bytes % type.size == 0 ? bytes / type.size : MPI_UNDEFINED;
}
}  // namespace

void MPI_Get_count_c(const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count) {
  *count = count_of(*status, type_of(datatype));
}
// Counts named elements, also those of a last type that came in part.
void MPI_Get_elements_c(const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count) {
  *count = elements_in(type_of(datatype), bytes_of(*status));
}
// For the query functions of generalized requests.
void MPI_Status_set_elements_c(MPI_Status* status, MPI_Datatype datatype, MPI_Count count) {
  set_bytes(*status, bytes_of_elements(type_of(datatype), count));
}
void MPI_Test_cancelled(const MPI_Status* status, int* flag) { *flag = cancelled(*status); }
void MPI_Status_set_cancelled(MPI_Status* status, int flag) { set_cancelled(*status, flag != 0); }

// Accessors of MPI 4.1.
#define FIELD(name, FIELD_NAME)                                                                   \
  void MPI_Status_get_##name(const MPI_Status* status, int* name) { *name = status->FIELD_NAME; } \
  void MPI_Status_set_##name(MPI_Status* status, int name) { status->FIELD_NAME = name; }
FIELD(source, MPI_SOURCE)
FIELD(tag, MPI_TAG)
FIELD(error, MPI_ERROR)

}  // namespace rondo_mpi::calls
