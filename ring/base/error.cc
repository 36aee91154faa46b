#include "rondo/error.h"

#include <cstddef>
#include <iterator>

namespace rondo {

const char* error_code_name(ErrorCode code) {
  static constexpr const char* kNames[] = {"OK",           "INVALID",  "MISMATCH",    "TIMEOUT",     "PEER_LOST",
                                           "ABORTED",      "PROTOCOL", "NETWORK",     "BOOTSTRAP",   "SYSTEM",
                                           "UNSUPPORTED",  "INTERNAL", "CLOSED",      "PEER_LEFT",   "INTERRUPTED",
                                           "UNRESPONSIVE", "CORRUPT",  "AUTH_FAILED", "EPOCH_STALE", "NOT_FINITE"};
  static_assert(std::size(kNames) == static_cast<size_t>(ErrorCode::kNotFinite) + 1);
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

}  // namespace rondo
