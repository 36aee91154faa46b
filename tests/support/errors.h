#pragma once

#include <functional>
#include <string>

#include "rondo/error.h"

namespace rondo::testing {

// What the call throws; an error whose code is kOk if nothing.
Error error_of(const std::function<void()>& call);
ErrorCode code_of(const std::function<void()>& call);

// Throws unless it is this error, with these words in its message.
void expect_error(const Error& error, ErrorCode code, const std::string& words = "");
void expect_error(const std::function<void()>& call, ErrorCode code, const std::string& words = "");

}  // namespace rondo::testing
