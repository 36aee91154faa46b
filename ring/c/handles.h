#pragma once

#include <memory>

#include "ring/c/arguments.h"
#include "ring/c/result.h"
#include "ring/communicator_access.h"
#include "ring/engine/call/collective_call.h"
#include "rondo/communicator.h"
#include "rondo/rondo.h"

// Opaque to callers.
struct rondo_comm {
  rondo::Communicator communicator;
};
struct rondo_work {
  rondo::Work work;
};

namespace rondo::c {

inline Communicator& communicator(rondo_comm_t comm) { return given(comm, "comm").communicator; }

inline void fill(rondo_message_t* message, const Work::Message& from) {
  if (message != nullptr) *message = {from.peer, from.tag, from.bytes};
}

// Runs `action`, which gives a Work, and hands out a handle to it.
template <typename Action>
rondo_result_t start(rondo_work_t* work, Action action) noexcept {
  return guarded([&] {
    given(work, "work") = nullptr;
    auto handle = std::make_unique<rondo_work>();
    handle->work = action();
    *work = handle.release();
  });
}

// `call`: gives the CollectiveCall.
template <typename Call>
rondo_result_t run_call(rondo_comm_t comm, Call call) noexcept {
  return guarded([&] { CommunicatorAccess::run(communicator(comm), call()); });
}
template <typename Call>
rondo_result_t start_call(rondo_comm_t comm, rondo_work_t* work, Call call) noexcept {
  return start(work, [&] { return CommunicatorAccess::start(communicator(comm), call()); });
}

}  // namespace rondo::c
