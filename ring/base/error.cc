#include "rondo/error.h"

namespace rondo {
namespace {

// nullptr: no code. Without a default, so that the compiler names a code that has no line.
constexpr const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "OK";
    case ErrorCode::kInvalid:
      return "INVALID";
    case ErrorCode::kMismatch:
      return "MISMATCH";
    case ErrorCode::kTimeout:
      return "TIMEOUT";
    case ErrorCode::kPeerLost:
      return "PEER_LOST";
    case ErrorCode::kAborted:
      return "ABORTED";
    case ErrorCode::kProtocol:
      return "PROTOCOL";
    case ErrorCode::kNetwork:
      return "NETWORK";
    case ErrorCode::kBootstrap:
      return "BOOTSTRAP";
    case ErrorCode::kSystem:
      return "SYSTEM";
    case ErrorCode::kUnsupported:
      return "UNSUPPORTED";
    case ErrorCode::kInternal:
      return "INTERNAL";
    case ErrorCode::kClosed:
      return "CLOSED";
    case ErrorCode::kPeerLeft:
      return "PEER_LEFT";
    case ErrorCode::kInterrupted:
      return "INTERRUPTED";
    case ErrorCode::kUnresponsive:
      return "UNRESPONSIVE";
    case ErrorCode::kCorrupt:
      return "CORRUPT";
    case ErrorCode::kAuthFailed:
      return "AUTH_FAILED";
    case ErrorCode::kEpochStale:
      return "EPOCH_STALE";
    case ErrorCode::kNotFinite:
      return "NOT_FINITE";
    case ErrorCode::kCancelled:
      return "CANCELLED";
    case ErrorCode::kTruncated:
      return "TRUNCATED";
    case ErrorCode::kNoQuorum:
      return "NO_QUORUM";
  }
  return nullptr;
}

static_assert(name_of(static_cast<ErrorCode>(kErrorCodes - 1)) != nullptr &&
                  name_of(static_cast<ErrorCode>(kErrorCodes)) == nullptr,
              "kErrorCodes is the number of codes");

}  // namespace

const char* error_code_name(ErrorCode code) {
  const char* name = name_of(code);
  return name != nullptr ? name : "UNKNOWN";
}

}  // namespace rondo
