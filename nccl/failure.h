#pragma once

#include <exception>
#include <string>

#include "nccl/abi.h"
#include "rondo/rondo.h"

namespace rondo::nccl {

// What a call ends with, and why: thrown inside the library, and caught by the call. The text is for people:
// ncclGetLastError() and NCCL_DEBUG show it.
struct Failure {
  ncclResult_t result;
  std::string text;
};

// Throws Failure.
[[noreturn]] void refuse(ncclResult_t result, std::string text);
// Throws Failure with the text of rondo_last_error(), unless the call of Rondo has succeeded.
void check(rondo_result_t result);
// In a catch block: what it has caught.
Failure caught();
// NCCL's name for a result of Rondo's.
ncclResult_t result_of(rondo_result_t result);

// ncclGetLastError() of this process from now on; NCCL_DEBUG=WARN (or more) writes it to standard error, too.
// Without memory for it: "out of memory". Any thread.
void tell(const char* call, const char* text) noexcept;
// A copy: another thread may tell the next one at once.
std::string last_told();

// Runs the body of a call. What it throws is reported by tell(), and becomes the call's result. Nothing is thrown out
// of a function of NCCL: the frames of its caller may be C's.
template <typename Body>
ncclResult_t guarded(const char* call, Body body) noexcept {
  try {
    return body();
  } catch (const Failure& failure) {
    tell(call, failure.text.c_str());
    return failure.result;
  } catch (const std::exception& error) {
    tell(call, error.what());
    return ncclSystemError;
  }
}

}  // namespace rondo::nccl
