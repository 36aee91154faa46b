#pragma once

#include "ring/communicator_access.h"
#include "ring/engine/call/collective_call.h"

namespace rondo::testing {

// Any collective by description, as the C API makes them.
inline void run(Communicator& group, const CollectiveCall& call) { CommunicatorAccess::run(group, call); }
inline Work start(Communicator& group, const CollectiveCall& call) { return CommunicatorAccess::start(group, call); }

}  // namespace rondo::testing
