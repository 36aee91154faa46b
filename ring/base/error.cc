#include "rondo/error.h"

namespace rondo {

const char* error_code_name(ErrorCode code) {
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
  }
  return "UNKNOWN";
}

}  // namespace rondo
