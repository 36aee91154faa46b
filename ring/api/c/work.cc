#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

namespace {

// Negative: for ever, as far as a clock can say.
std::chrono::nanoseconds time_of(int64_t timeout_ms) {
  constexpr auto kForever = std::chrono::nanoseconds::max();
  const bool forever = timeout_ms < 0 || timeout_ms >= std::chrono::floor<std::chrono::milliseconds>(kForever).count();
  return forever ? kForever : std::chrono::milliseconds(timeout_ms);
}

// Copies the Works: the handles may be freed by another thread while this one waits. A NULL entry becomes an empty
// Work, so places in the list stay those of the caller.
std::vector<rondo::Work> works_of(const rondo_work_t* works, size_t count) {
  std::vector<rondo::Work> list(count);
  for (size_t i = 0; i < count; ++i) {
    if (given(works, "works") != nullptr && works[i] != nullptr) list[i] = works[i]->work;
  }
  return list;
}

}  // namespace

extern "C" {

// RONDO_IN_PROGRESS leaves the last error as it is: a wait that runs out is no failure.
rondo_result_t rondo_wait(rondo_work_t work, int64_t timeout_ms) {
  bool done = true;
  const rondo_result_t result = guarded([&] { done = work_of(work).wait(time_of(timeout_ms)); });
  return result == RONDO_OK && !done ? RONDO_IN_PROGRESS : result;
}
rondo_result_t rondo_wait_all(const rondo_work_t* works, size_t count, int64_t timeout_ms) {
  bool done = true;
  const rondo_result_t result = guarded([&] {
    std::vector<rondo::Work> list = works_of(works, count);
    done = rondo::wait_all(list, time_of(timeout_ms));
  });
  return result == RONDO_OK && !done ? RONDO_IN_PROGRESS : result;
}
// *index == count with no work in the list is a success: there is nothing to wait for.
rondo_result_t rondo_wait_any(const rondo_work_t* works, size_t count, int64_t timeout_ms, size_t* index) {
  bool done = true;
  const rondo_result_t result = guarded([&] {
    given(index, "index") = count;
    std::vector<rondo::Work> list = works_of(works, count);
    *index = rondo::wait_any(list, time_of(timeout_ms));
    done = *index < count || std::ranges::none_of(list, &rondo::Work::valid);
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
    handle.on_end(
        // On the worker's thread: failed() sets the last error of that thread, which the function reads.
        [function, context](const rondo::Error& error) { function(context, error.ok() ? RONDO_OK : failed(error)); });
  });
}
rondo_result_t rondo_work_free(rondo_work_t work) {
  return guarded([&] { delete work; });
}

}  // extern "C"
