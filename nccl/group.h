#pragma once

#include <cstddef>
#include <functional>

#include "nccl/comm.h"

namespace rondo::nccl {

// What a call does for one communicator, on a thread with its device.
struct Job {
  // A message meets those of other ranks in any order, and so starts together with the other calls of its group.
  // kMaking waits for other ranks, and begins nothing in a stream.
  enum class Kind { kMaking, kCollective, kMessage };
  ncclComm* comm;  // not owned; the program must not destroy it before the job has run
  Kind kind;
  std::function<void()> run;      // throws Failure
  ncclComm* made = nullptr;       // by this; nullptr: none
  ncclStream_t stream = nullptr;  // of a call
};

// Runs the job: at once, or at the end of the calling thread's group, after those that came before. ncclInProgress: a
// thread of the library does, since the communicator does not block. Throws Failure.
ncclResult_t submit(Job job);

// Groups nest, those of each thread by themselves. Only the end of the outermost one runs jobs.
void start_group();
// The jobs of each communicator run in order, those of several beside each other, by a thread each: ranks of one
// process wait for one another. Communicators with a stream in common run one after the other, in the order of their
// first calls: what one puts into the stream may wait for what other ranks put into theirs. Behind one that fails no
// other of its communicator runs. Throws the first Failure when all have run, or what submit() says.
ncclResult_t end_group();
// A group of the library's own, perhaps in one of the program's. One that is left without end() forgets its own jobs.
class Group {
 public:
  Group();
  ~Group();
  Group(const Group&) = delete;
  ncclResult_t end() {
    open_ = false;
    return end_group();
  }

 private:
  const size_t jobs_before_;  // of the groups around it
  bool open_ = true;
};

}  // namespace rondo::nccl
