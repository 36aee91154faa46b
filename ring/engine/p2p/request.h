#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "rondo/call.h"
#include "rondo/dtype.h"
#include "rondo/error.h"

namespace rondo {

// A send, a receive or a probe with checked arguments. Its caller keeps the memory until it is complete.
struct P2pCall {
  MessageKind kind = MessageKind::kSend;
  std::byte* data = nullptr;  // a send only reads it
  uint64_t bytes = 0;         // of a receive: of its buffer
  DType dtype = DType::kInt8;
  int peer = 0;              // rank in the communicator; but for sends: or kAnySource
  int tag = 0;               // 0 .. 2^31-1; but for sends: or kAnyTag
  bool synchronous = false;  // a send
  bool truncate = false;     // a receive
  uint64_t matched = 0;      // a receive: of the message that a probe has taken, from any source; 0: any message
  bool plain = true;         // none of these but `truncate`, and no probe: it may go the short way

  bool sends() const { return kind == MessageKind::kSend; }
  bool probes() const { return kind >= MessageKind::kProbe; }
};

// A call under way. The caller owns it, and keeps it until complete() is called. P2p touches neither it nor its
// memory afterwards.
class P2pRequest : public P2pCall {
 public:
  P2pRequest() = default;
  explicit P2pRequest(const P2pCall& call) : P2pCall(call) {}
  P2pRequest(const P2pRequest&) = delete;
  P2pRequest& operator=(const P2pRequest&) = delete;
  virtual ~P2pRequest() = default;
  // Makes it another call. Requires that it is complete and that nobody refers to it.
  void renew(const P2pCall& call) { static_cast<P2pCall&>(*this) = call; }

  // nullptr: success. Called once, from inside a call of P2p, under the lease. It may destroy the request and
  // submit others, since P2p holds no reference any more. Must not throw.
  virtual void complete(const Error* error) = 0;

  // What has moved or was found; valid in complete(nullptr). The owner of a send sets it.
  Message message;
  // Bytes of its message that a receive's buffer takes. Requires that it has a message.
  uint64_t wanted() const { return std::min(message.bytes, bytes); }

  // What follows belongs to P2p.
  uint64_t sequence = 0;  // of the message that it carries or takes
  uint64_t moved = 0;     // payload bytes handed to the stream, or arrived
  uint64_t cleared = 0;   // of a send that was requested: payload bytes that its receive takes
  uint64_t address = 0;   // of a message that its receiver reads: where it lies in the sender's process; 0: it does not
  uint64_t posted = 0;    // of a receive: its number in the order of posting
  Error cause;            // what complete() will say
  P2pRequest* next_done = nullptr;
  P2pRequest* next = nullptr;
  P2pRequest* previous = nullptr;
};

// How far a call came that is over at once, or has not begun.
enum class P2pAtOnce : uint8_t {
  kNothingYet,  // of a receive: nothing has come: ask again
  kOver,        // the message has gone, or is in the receive's memory
  kNot,         // it takes the long way: submit()
};

}  // namespace rondo
