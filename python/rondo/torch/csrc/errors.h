#pragma once

#include <rondo/rondo.h>

#include <exception>
#include <string>

namespace rondo_torch {

// The failure `code` that a function of rondo.h has just returned on this thread, as what torch raises:
// RONDO_INVALID: ValueError; RONDO_INTERRUPTED: what the handler of a Python signal raised, KeyboardInterrupt for one;
// everything else: DistBackendError, whose text begins with the code's name and the ranks to blame.
std::exception_ptr failure(rondo_result_t code);

// Throws failure(code) unless code is RONDO_OK.
void check(rondo_result_t code);

// Throws a DistBackendError with this text.
[[noreturn]] void fail(const std::string& text);

}  // namespace rondo_torch
