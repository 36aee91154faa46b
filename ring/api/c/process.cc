#include "ring/api/c/result.h"
#include "rondo/interrupt.h"
#include "rondo/log.h"
#include "rondo/rondo.h"

using rondo::c::guarded;

extern "C" {

const char* rondo_version(void) { return RONDO_VERSION; }

// These functions serve the whole process (the thread, for rondo_set_thread_interrupt), not a communicator, and may be
// called before the first join.
rondo_result_t rondo_set_log(rondo_log_function_t function, void* context) {
  return guarded([&] { rondo::set_log_function(function, context); });
}

rondo_result_t rondo_set_interrupt(rondo_interrupt_function_t function, void* context) {
  return guarded([&] { rondo::set_interrupt_function(function, context); });
}

rondo_result_t rondo_set_thread_interrupt(rondo_interrupt_function_t function, void* context) {
  return guarded([&] { rondo::set_thread_interrupt_function(function, context); });
}

}  // extern "C"
