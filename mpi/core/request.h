#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// A status is read and written here alone: its layout is the face's.
void set_status(MPI_Status* status, const Outcome& outcome);
// Apart from set_status(), since MPI says that a call for one request leaves MPI_ERROR of its status as it was.
void set_status_error(MPI_Status* status, int error);
MPI_Count bytes_of(const MPI_Status& status);
bool cancelled(const MPI_Status& status);
void set_bytes(MPI_Status& status, MPI_Count bytes);
// These two keep each other's bits.
void set_cancelled(MPI_Status& status, bool flag);

// The outcome of a message that was received or probed.
Outcome outcome_of(const Comm& comm, const rondo::Message& message);

// Whether the request is over; makes progress on it. It does not wait, and may be asked again.
bool over(Request& request);
// A persistent request was started: what its function has set counts from here on, also for another thread that asks.
void activate(Request& request);
// Waits until it is over, and finishes it: afterwards its outcome stands, a persistent one is inactive. A second call
// does nothing. Called by one thread of a request at a time.
void complete(Request& request);
// Whether it is over, for a question that does not end it: if so, its data is there and its outcome stands, and it
// stays active until it is waited for.
bool finished(Request& request);
// Gives up a request: when it is over, a thread of the engine finishes it, and no thread waits for it. Its error is
// told to no one, since MPI has no call for it.
void release(const std::shared_ptr<Request>& request);

// Counts the ends of requests that a thread watches, for a thread that waits until one of several is over. There is one
// for all threads, so a thread also wakes up for the ends of others' requests, and looks again.
class Ends {
 public:
  uint32_t count() const { return count_; }
  // The end of what is under way for it will be counted.
  void watch(Request& request);
  void tell() {
    ++count_;
    count_.notify_all();
  }
  // Until more ends than `count` were counted.
  void wait(uint32_t count) const { count_.wait(count); }

 private:
  std::atomic<uint32_t> count_{0};
};
Ends& ends();

// A request that is under way, without a handle; one that this thread has ended, if it has some. Takes no lock. All
// fields but these two are as in a new one.
std::shared_ptr<Request> make_request(Request::Kind kind, std::shared_ptr<Comm> comm);
// Gives it a handle. Where the table is full, it throws, and the request goes on without a handle.
MPI_Request add_request(std::shared_ptr<Request> request);
// Ends the handle of one that is over, which is null then. Called by the thread that completed it, with no other user
// of the handle.
void end_request(MPI_Request* handle);

}  // namespace rondo_mpi
