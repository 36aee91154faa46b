#pragma once

#include "rondo/communicator.h"

namespace rondo {

// What the library's own layers above the Communicator need of it.
class CommunicatorAccess {
 public:
  // For calls that are made of others (compress/compound_call.h). Throws the communicator's failure, and kInvalid in a
  // batch of this thread and in an end function.
  static void check_outside_batch(const Communicator& communicator, const char* call);
  // The communicator fails on all ranks, unless it has failed.
  static void fail(const Communicator& communicator, const Error& error);
};

}  // namespace rondo
