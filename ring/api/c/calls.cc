#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

extern "C" {

// The C entry of every blocking collective: rondo_all_reduce and its like (calls_c.h) fill in `call`. From here
// a call goes to Communicator::run(), then to CollectiveCalls::run() in ring/engine, whose comments follow it
// to its first byte.
rondo_result_t rondo_run(rondo_comm_t comm, const rondo_call_t* call) {
  return guarded([&] {
    const InUse group = communicator(comm);
    group->run(call_of(call, *group));
  });
}
rondo_result_t rondo_start(rondo_comm_t comm, const rondo_call_t* call, rondo_work_t* work) {
  return start(work, [&] {
    const InUse group = communicator(comm);
    return group->start(call_of(call, *group));
  });
}

}  // extern "C"
