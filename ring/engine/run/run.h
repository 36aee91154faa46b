#pragma once

#include <cstddef>
#include <cstdint>

#include "ring/engine/call/call.h"
#include "ring/engine/progress/flow.h"
#include "ring/engine/run/wire_move.h"
#include "rondo/error.h"
#include "rondo/op.h"
#include "transport/link.h"

namespace rondo {

// What one operation brings to a run that was prepared for calls like it.
struct RunStart {
  CallBuffers buffers;
  uint64_t sequence = 0;     // among the communicator's calls
  uint64_t fingerprint = 0;  // of this one: what ranks compare
};

// Why a run does not move any more. Ranks are those of the group.
struct RunFailure {
  enum class Kind : uint8_t {
    kNone,
    kLink,        // the link to `peer` has failed: `link`
    kOtherCall,   // `peer` has posted for another call: `fingerprint`
    kUnreadable,  // the memory of `peer`
    kClosed,      // the buffers of `peer`: the communicator has failed there
    kDamaged,     // packed elements that `peer` has sent are none
    kCorrupt,     // what `peer` has written in shared memory: `what`
  };
  Kind kind = Kind::kNone;
  int peer = -1;
  const Link* link = nullptr;  // its error() says more
  uint64_t fingerprint = 0;
  const char* what = "";
};

// What moves the bytes of one call after another: over links, over windows or by posts. Under the lease.
class Run {
 public:
  Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  virtual ~Run() = default;

  // Before each start(). False: a link or a window that it needs has been asked for; the doorbell rings when it comes.
  virtual bool ready() = 0;
  virtual void start(const RunStart& start) = 0;
  // Moves all that can be moved now. True if anything moved. Never blocks.
  virtual bool progress(Pass pass) = 0;
  virtual bool done() const = 0;
  // Grows while it moves.
  virtual uint64_t moved() = 0;
  virtual RunFailure failure() = 0;
  // Once it is done, of calls with a wire format: the first element of the result that is not finite.
  virtual WireNote not_finite() { return {}; }
  // A peer whose op is another, where ranks may differ in it (CallFields::any_op); -1: none was seen.
  struct OtherOp {
    int peer = -1;
    Op op = Op::kSum;
  };
  virtual OtherOp other_op() { return {}; }
  // After each start(): it is done, or abandoned. From then on nothing touches the caller's memory.
  virtual void end() {}
};

}  // namespace rondo
