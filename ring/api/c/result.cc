#include "ring/api/c/result.h"

#include <string>
#include <utility>

namespace {

// This thread's last failure.
thread_local std::string last_error;
thread_local std::vector<int> last_error_ranks;

}  // namespace

namespace rondo::c {

rondo_result_t failed(ErrorCode code, const char* message, std::vector<int> ranks) noexcept {
  take_interruption();  // this failure tells of it
  try {
    last_error = message;
    last_error_ranks = std::move(ranks);
  } catch (...) {
    last_error.clear();  // out of memory: the code must do
  }
  return static_cast<rondo_result_t>(code);
}

}  // namespace rondo::c

extern "C" {

const char* rondo_last_error(void) { return last_error.c_str(); }

size_t rondo_last_error_ranks(int* ranks, size_t capacity) {
  for (size_t i = 0; i < last_error_ranks.size() && i < capacity && ranks != nullptr; ++i)
    ranks[i] = last_error_ranks[i];
  return last_error_ranks.size();
}

const char* rondo_result_name(rondo_result_t result) {
  return result == RONDO_IN_PROGRESS ? "IN_PROGRESS" : rondo::error_code_name(static_cast<rondo::ErrorCode>(result));
}

}  // extern "C"
