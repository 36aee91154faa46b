#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "ring/api/c/arguments.h"
#include "ring/api/c/result.h"
#include "ring/api/communicator_access.h"
#include "rondo/communicator.h"
#include "rondo/rondo.h"

// A rondo_comm is freed by its last use after rondo_destroy(), a rondo_work by rondo_work_free().
// Opaque to callers.
struct rondo_comm {
  rondo::Communicator communicator;
  std::atomic<int> uses{1};  // calls under way, and one for rondo_destroy, which has not been called
};
// A Work counts its references to the operation, so freeing the handle never ends an operation.
struct rondo_work {
  rondo::Work work;
};

namespace rondo::c {

// Gives up one use. The last one frees the handle; acq_rel, so that it sees what all others did.
inline void release(rondo_comm& comm) {
  if (comm.uses.fetch_sub(1, std::memory_order_acq_rel) == 1) delete &comm;
}

// The communicator of a handle, in use for as long as this lives. rondo_destroy() beside a call that has begun
// leaves the handle to that call, which frees it.
class InUse {
 public:
  // Relaxed: the caller has the handle, so the count is at least 1 here; only release() orders memory.
  explicit InUse(rondo_comm_t comm) : comm_(given(comm, "comm")) { comm_.uses.fetch_add(1, std::memory_order_relaxed); }
  ~InUse() { release(comm_); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  Communicator& operator*() const { return comm_.communicator; }
  Communicator* operator->() const { return &comm_.communicator; }

 private:
  rondo_comm& comm_;
};
// A new handle. Throws instead if the call was interrupted: the caller gets an error, and would never free it.
inline rondo_comm_t hand_out(Communicator made) {
  refuse_interrupted();
  return new rondo_comm{std::move(made)};
}
// Runs `action`, which returns a Communicator, and hands out a handle to it; NULL for an empty one.
template <typename Action>
rondo_result_t make(rondo_comm_t* handle, const char* name, Action action) noexcept {
  return guarded([&] {
    given(handle, name) = nullptr;
    Communicator made = action();
    if (made.valid()) *handle = hand_out(std::move(made));
  });
}
inline InUse communicator(rondo_comm_t comm) { return InUse(comm); }

// The Work of a handle: a copy, so that rondo_work_free() beside a call does no harm.
inline Work work_of(rondo_work_t work) { return given(work, "work").work; }

inline void fill(rondo_message_t* message, const Message& from) {
  if (message != nullptr) *message = {from.peer, from.tag, from.bytes, from.matched};
}

// Runs `action`, which returns a Work, and hands out a handle to it. The handle is allocated first: an
// operation under way must not be lost for want of memory.
template <typename Action>
rondo_result_t start(rondo_work_t* work, Action action) noexcept {
  return guarded([&] {
    given(work, "work") = nullptr;
    auto handle = std::make_unique<rondo_work>();
    handle->work = action();
    *work = handle.release();
  });
}

}  // namespace rondo::c
