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

// What one operation brings to a run that was prepared for equal calls: pointers, number and fingerprint. The
// buffers must stay valid until the run has ended.
struct RunStart {
  CallBuffers buffers;
  uint64_t sequence = 0;     // among the communicator's calls
  uint64_t fingerprint = 0;  // of this one: what ranks compare
};

// Why a run does not move any more. A value, not an exception: CallWatch turns it into an error that names the
// ranks. Ranks are those of the group.
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

// Moves the bytes of one call after another: over links, over windows or by posts. One PreparedCall owns it, or
// one exchange. Under the lease.
//
// Each operation calls, in this order: ready() until it is true, start(), progress() until done(), end(). A
// failed one is ended before it is done.
class Run {
 public:
  Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  virtual ~Run() = default;

  // Whether all links and windows are there. False: a missing one has been asked for, and the doorbell rings
  // when it comes.
  virtual bool ready() = 0;
  virtual void start(const RunStart& start) = 0;
  // Moves everything that can move now. True if anything moved. Never blocks.
  virtual bool progress(Pass pass) = 0;
  virtual bool done() const = 0;
  // Grows while the operation moves; starts anew with each one.
  virtual uint64_t moved() = 0;
  // Why it stands still for good; kNone while it may go on. Asked after a pass that has moved nothing.
  virtual RunFailure failure() = 0;
  // The first element of the result that is not finite, once the run is done: for calls with a wire format.
  virtual WireNote not_finite() { return {}; }
  // A peer that reduces by another op, in a call that allows it (CallFields::any_op); -1: none was seen.
  struct OtherOp {
    int peer = -1;
    Op op = Op::kSum;
  };
  virtual OtherOp other_op() { return {}; }
  // Must follow each start(), when the run is done or abandoned. From then on nothing touches the caller's
  // memory.
  virtual void end() {}
};

}  // namespace rondo
