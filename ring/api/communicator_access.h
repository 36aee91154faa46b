#pragma once

#include "rondo/communicator.h"

namespace rondo {

// What the layers of the library above the Communicator need of it (compress/).
class CommunicatorAccess {
 public:
  // For calls that are made of others (compress/compound_call.h). Throws the communicator's failure, and
  // kInvalid in an open batch of this thread and in an end function.
  static void check_outside_batch(const Communicator& communicator, const char* call);
  // Fails the communicator on all ranks, unless it has failed.
  static void fail(const Communicator& communicator, const Error& error);
};

}  // namespace rondo
