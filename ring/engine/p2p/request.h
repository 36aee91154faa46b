#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rondo/dtype.h"
#include "rondo/error.h"

namespace rondo {

inline constexpr int kP2pAnySource = -1;
inline constexpr int kP2pAnyTag = -1;

// A send or a receive under way. The caller owns it and keeps it, and its memory, until complete() is called; nothing
// is touched after that.
class P2pRequest {
 public:
  P2pRequest() = default;
  P2pRequest(const P2pRequest&) = delete;
  P2pRequest& operator=(const P2pRequest&) = delete;
  virtual ~P2pRequest() = default;

  // nullptr: success. Throws nothing. Called once, from inside a call of P2p, which holds no reference afterwards: the
  // request may be destroyed, and P2p may be called again (send, recv), in it.
  virtual void complete(const Error* error) = 0;

  int peer = 0;  // rank in the communicator; receives: or kP2pAnySource
  int tag = 0;   // 0 .. 2^31-1; receives: or kP2pAnyTag
  DType dtype = DType::kInt8;
  uint64_t bytes = 0;  // receives: the size of the buffer

  // --- P2p's own
  uint64_t sequence = 0;  // of the message that it carries or takes
  uint64_t moved = 0;     // payload bytes handed to the stream, or arrived
  Error error;            // what complete() will say
  P2pRequest* next_done = nullptr;
};

// A message that is sent, or received, at once or not at all (P2p::send_now, recv_now): what a request says of it.
struct P2pOut {
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  DType dtype = DType::kInt8;
  int peer = 0;
  int tag = 0;
};
struct P2pIn {
  std::byte* data = nullptr;
  uint64_t bytes = 0;  // of the buffer
  DType dtype = DType::kInt8;
  int peer = 0;  // or kP2pAnySource
  int tag = 0;   // or kP2pAnyTag

  // What has come, after P2pFound::kMessage.
  int from = -1;
  int got_tag = -1;
  uint64_t got_bytes = 0;
};

// What P2p::recv_now() has found.
enum class P2pFound : uint8_t {
  kNothing,  // nothing has come: ask again
  kMessage,  // the receive's message: it is in its memory
  kOther,    // something that takes the long way: recv()
};

class SendRequest : public P2pRequest {
 public:
  const std::byte* data = nullptr;
  // Bytes of data that are there, where it is filled meanwhile; nullptr: all. It grows, and then the driver is woken.
  // Acquire pairs with the release of the thread that fills it.
  const std::atomic<uint64_t>* ready = nullptr;
  uint64_t ready_bytes() const { return ready != nullptr ? ready->load(std::memory_order_acquire) : bytes; }

  SendRequest* next = nullptr;
  SendRequest* previous = nullptr;
};

class RecvRequest : public P2pRequest {
 public:
  std::byte* data = nullptr;

  // `moved` bytes of a message have come that comes in several parts. Under the same rules as complete().
  virtual void progressed() {}

  // Valid in complete(nullptr): what has come.
  struct Message {
    int peer = -1;
    int tag = -1;
    uint64_t bytes = 0;
  };
  Message message;

  uint64_t posted = 0;  // number in the order of posting
  RecvRequest* next = nullptr;
  RecvRequest* previous = nullptr;
};

}  // namespace rondo
