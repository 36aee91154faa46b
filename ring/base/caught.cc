#include "ring/base/caught.h"

#include <exception>
#include <new>
#include <string>
#include <system_error>

namespace rondo {
namespace {

// Rethrows what is being handled, to find its type.
Error current() {
  try {
    throw;
  } catch (const Exception& exception) {
    return exception.error();
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kSystem, "out of memory", {}};
  } catch (const std::system_error& exception) {
    return {ErrorCode::kSystem, exception.what(), {}};
  } catch (const std::exception& exception) {
    return {ErrorCode::kInternal, std::string("an unexpected exception: ") + exception.what(), {}};
  } catch (...) {
    return {ErrorCode::kInternal, "an exception of an unknown type", {}};
  }
}

}  // namespace

Error caught() noexcept {
  try {
    return current();
  } catch (...) {  // no memory for the text
    return {ErrorCode::kSystem, {}, {}};
  }
}

void keep_error(const Error& error, Error& kept) noexcept {
  try {
    kept = error;
  } catch (...) {
    kept = {};
    kept.code = error.code;
  }
}

}  // namespace rondo
