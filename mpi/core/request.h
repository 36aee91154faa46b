#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// A status is read and written here alone: its layout is the face's.
void set_status(MPI_Status* status, const Outcome& outcome);
void set_status_error(MPI_Status* status, int error);
MPI_Count bytes_of(const MPI_Status& status);
bool cancelled(const MPI_Status& status);
void set_bytes(MPI_Status& status, MPI_Count bytes);
void set_cancelled(MPI_Status& status, bool flag);

// The outcome of a message that was received or probed.
Outcome outcome_of(const Comm& comm, const rondo::Message& message);

// Whether the request is over; makes progress on it.
bool over(Request& request);
// Waits until it is over, and finishes it: afterwards its outcome stands, a persistent one is inactive. A second call
// does nothing.
void complete(Request& request);
// Whether it is over, for a question that does not end it: if so, its data is there and its outcome stands, and it
// stays active until it is waited for.
bool finished(Request& request);
// Lets go of a request: it is finished when it is over, without anybody to ask.
void release(const std::shared_ptr<Request>& request);

// Counts the ends of requests that a thread watches: for one that waits for any of several.
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

// A request that is under way, without a handle; one that this thread has ended, if it has some. Takes no lock.
std::shared_ptr<Request> make_request(Request::Kind kind, std::shared_ptr<Comm> comm);
// Gives it a handle.
MPI_Request add_request(std::shared_ptr<Request> request);
// Ends the handle of one that is over, which is null then.
void end_request(MPI_Request* handle);

}  // namespace rondo_mpi
