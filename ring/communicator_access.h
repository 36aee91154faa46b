#pragma once

#include "ring/engine/call/collective_call.h"
#include "rondo/communicator.h"

namespace rondo {

// Any collective by description: for the C API, and for tests that go through all of them.
class CommunicatorAccess {
 public:
  static void run(Communicator& communicator, const CollectiveCall& call) { communicator.run(call); }
  static Work start(Communicator& communicator, const CollectiveCall& call) { return communicator.start(call); }
};

}  // namespace rondo
