#include "tests/support/errors.h"

#include <fmt/format.h>

#include "tests/support/rank_group.h"

namespace rondo::testing {

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& failure) {
    return failure.error();
  }
  return {};
}

ErrorCode code_of(const std::function<void()>& call) { return error_of(call).code; }

void expect_error(const Error& error, ErrorCode code, const std::string& words) {
  expect(error.code == code && error.message.find(words) != std::string::npos, [&] {
    return fmt::format("{} with \"{}\" was expected; it is {}: {}", error_code_name(code), words,
                       error_code_name(error.code), error.message);
  });
}

void expect_error(const std::function<void()>& call, ErrorCode code, const std::string& words) {
  expect_error(error_of(call), code, words);
}

}  // namespace rondo::testing
