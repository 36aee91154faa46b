#include "ring/api/c/result.h"

#include <string>
#include <vector>

namespace {

// This thread's last failure, for rondo_last_error(). Without memory for it the texts are empty, and the caller
// has the code alone.
struct LastError {
  std::string message;
  std::vector<int> ranks, world_ranks;
  std::vector<int64_t> processes;
};
thread_local LastError last_error;

template <typename Value>
// Copies what fits, and returns how many there are, so that a caller can ask for the number first with capacity 0.
size_t copied(const std::vector<Value>& from, Value* to, size_t capacity) {
  for (size_t i = 0; i < from.size() && i < capacity && to != nullptr; ++i) to[i] = from[i];
  return from.size();
}

}  // namespace

namespace rondo::c {

// The text and the lists are set apart from each other: without memory for the lists the text still stands.
rondo_result_t failed(const Error& error) noexcept {
  const rondo_result_t result = failed(error.code, error.message.c_str());
  try {
    last_error.ranks = error.ranks;
    last_error.world_ranks = error.world_ranks;
    last_error.processes = error.processes;
  } catch (...) {  // out of memory: the code must do
  }
  return result;
}

rondo_result_t failed(ErrorCode code, const char* message) noexcept {
  take_interruption();  // this failure reports it
  last_error.ranks.clear();
  last_error.world_ranks.clear();
  last_error.processes.clear();
  try {
    last_error.message = message;
  } catch (...) {
    last_error.message.clear();  // out of memory: the code must do
  }
  return static_cast<rondo_result_t>(code);
}

}  // namespace rondo::c

extern "C" {

const char* rondo_last_error(void) { return last_error.message.c_str(); }

size_t rondo_last_error_ranks(int* ranks, size_t capacity) { return copied(last_error.ranks, ranks, capacity); }
size_t rondo_last_error_world_ranks(int* ranks, size_t capacity) {
  return copied(last_error.world_ranks, ranks, capacity);
}

size_t rondo_last_error_processes(int64_t* processes, size_t capacity) {
  return copied(last_error.processes, processes, capacity);
}

// RONDO_IN_PROGRESS is no ErrorCode, since it is no failure.
const char* rondo_result_name(rondo_result_t result) {
  return result == RONDO_IN_PROGRESS ? "IN_PROGRESS" : rondo::error_code_name(static_cast<rondo::ErrorCode>(result));
}

}  // extern "C"
