#pragma once

#include <rondo/rondo.h>

#include <exception>
#include <string>

namespace rondo_torch {

// The failure `code` that a function of rondo.h has just returned on this thread, as what torch raises:
// RONDO_INVALID: ValueError; everything else: DistBackendError, whose text begins with the code's name and the ranks to
// blame.
std::exception_ptr failure(rondo_result_t code);

// Whether a failure with this text, one of the last ones, is that of another rank (RONDO_ABORTED, _PEER_LOST,
// _PEER_LEFT).
bool is_of_others(const std::string& text);

// Throws a failure; in the place of a DistBackendError what the handler of a Python signal raised in this thread's
// call, KeyboardInterrupt for one.
[[noreturn]] void raise(const std::exception_ptr& failure);

// raise(failure(code)) unless code is RONDO_OK.
void check(rondo_result_t code);

// Throws a DistBackendError with this text.
[[noreturn]] void fail(const std::string& text);

}  // namespace rondo_torch
