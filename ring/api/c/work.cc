#include <chrono>
#include <cstdint>
#include <optional>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

extern "C" {

rondo_result_t rondo_wait(rondo_work_t work, int64_t timeout_ms) {
  bool done = true;
  const rondo_result_t result = guarded([&] {
    rondo::Work handle = work_of(work);
    constexpr auto kForever = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds::max());
    if (timeout_ms < 0 || timeout_ms >= kForever.count()) {
      handle.wait();
    } else {
      done = handle.wait(std::chrono::milliseconds(timeout_ms));
    }
  });
  return result == RONDO_OK && !done ? RONDO_IN_PROGRESS : result;
}
rondo_result_t rondo_test(rondo_work_t work, int* done) {
  return guarded([&] { given(done, "done") = work_of(work).done() ? 1 : 0; });
}
rondo_result_t rondo_work_wait_on(rondo_work_t work, void* stream) {
  return guarded([&] { work_of(work).wait_on(stream); });
}
rondo_result_t rondo_work_cancel(rondo_work_t work, int* cancelled) {
  return guarded([&] { given(cancelled, "cancelled") = work_of(work).cancel() ? 1 : 0; });
}
rondo_result_t rondo_work_message(rondo_work_t work, rondo_message_t* message) {
  return guarded([&] { fill(&given(message, "message"), work_of(work).message()); });
}
rondo_result_t rondo_work_on_end(rondo_work_t work, rondo_end_function_t function, void* context) {
  return guarded([&] {
    rondo::Work handle = work_of(work);
    given(function, "function");
    handle.on_end([function, context](const rondo::Error& error) {
      function(context, error.ok() ? RONDO_OK : failed(error.code, error.message.c_str(), error.ranks));
    });
  });
}
rondo_result_t rondo_work_free(rondo_work_t work) {
  return guarded([&] { delete work; });
}

}  // extern "C"
