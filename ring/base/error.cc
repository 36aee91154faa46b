#include "rondo/error.h"

#include <iterator>

namespace rondo {
namespace {

// Names of the codes, by value.
constexpr const char* kNames[] = {
    "OK",        "INVALID",     "MISMATCH",    "TIMEOUT",    "PEER_LOST", "ABORTED",   "PROTOCOL",    "NETWORK",
    "BOOTSTRAP", "SYSTEM",      "UNSUPPORTED", "INTERNAL",   "CLOSED",    "PEER_LEFT", "INTERRUPTED", "UNRESPONSIVE",
    "CORRUPT",   "AUTH_FAILED", "EPOCH_STALE", "NOT_FINITE", "CANCELLED", "TRUNCATED", "NO_QUORUM"};
static_assert(std::size(kNames) == kErrorCodes, "each code has a name");
static_assert(static_cast<int>(ErrorCode::kNoQuorum) == kErrorCodes - 1, "kErrorCodes is the number of codes");

}  // namespace

const char* error_code_name(ErrorCode code) {
  const int value = static_cast<int>(code);
  return value >= 0 && value < kErrorCodes ? kNames[value] : "UNKNOWN";
}

}  // namespace rondo
