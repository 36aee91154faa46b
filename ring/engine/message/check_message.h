#pragma once

#include "ring/engine/p2p/request.h"
#include "rondo/communicator.h"

namespace rondo {

// A message whose arguments are good, as the state machine of messages takes it. Throws Exception(kInvalid) that names
// the argument, its value and this rank. No side effects.
P2pCall check_message(const MessageCall& call, int rank, int world);

}  // namespace rondo
