#include "nccl/failure.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

namespace rondo::nccl {
namespace {

std::mutex mutex;       // of what follows
std::string last_text;  // of the last failure of the process

// So short that a std::string keeps it without memory of its own.
constexpr const char* kNoMemory = "out of memory";

// NCCL_DEBUG is read at each failure, as a program may set it at any time. Levels above VERSION all show failures.
bool shows_failures() {
  const char* const level = std::getenv("NCCL_DEBUG");
  return level != nullptr && std::string_view(level) != "" && std::string_view(level) != "VERSION";
}

}  // namespace

void refuse(ncclResult_t result, std::string text) { throw Failure{result, std::move(text)}; }

// NCCL has few results: the program's mistake, the system's lack, the library's own fault, and ncclRemoteError for all
// that other ranks do.
ncclResult_t result_of(rondo_result_t result) {
  switch (result) {
    case RONDO_OK:
      return ncclSuccess;
    case RONDO_INVALID:
      return ncclInvalidArgument;
    case RONDO_MISMATCH:
    case RONDO_UNSUPPORTED:
    case RONDO_CLOSED:
    case RONDO_ABORTED:
      return ncclInvalidUsage;
    case RONDO_SYSTEM:
    case RONDO_NETWORK:
    case RONDO_BOOTSTRAP:
    case RONDO_INTERRUPTED:
      return ncclSystemError;
    case RONDO_INTERNAL:
    case RONDO_PROTOCOL:
    case RONDO_CORRUPT:
      return ncclInternalError;
    default:  // a rank is lost, has left, or does not come
      return ncclRemoteError;
  }
}

// A lack of memory is ncclSystemError, too.
Failure caught() {
  try {
    throw;
  } catch (const Failure& failure) {
    return failure;
  } catch (const std::exception& error) {
    return {ncclSystemError, error.what()};
  }
}

void check(rondo_result_t result) {
  if (result != RONDO_OK) refuse(result_of(result), rondo_last_error());
}

// Never throws: memory may be out.
void tell(const char* call, const char* text) noexcept {
  const std::lock_guard lock(mutex);
  try {
    last_text = std::string(call) + ": " + text;
  } catch (const std::bad_alloc&) {
    last_text.assign(kNoMemory);
  }
  if (shows_failures()) std::fprintf(stderr, "rondo: %s\n", last_text.c_str());
}

std::string last_told() {
  const std::lock_guard lock(mutex);
  return last_text;
}

}  // namespace rondo::nccl
