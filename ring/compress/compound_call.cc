#include "ring/compress/compound_call.h"

#include "ring/api/communicator_access.h"
#include "ring/base/caught.h"

namespace rondo {

CompoundCall::CompoundCall(Communicator& group, Purpose purpose, const char* name)
    : group_(group), purpose_(purpose), name_(name) {
  CommunicatorAccess::check_outside_batch(group, name);
}

// In a catch block.
void CompoundCall::end_by_exception() const {
  const Error error = caught();
  const bool known_to_all = error.code == ErrorCode::kNotFinite || error.code == ErrorCode::kMismatch;
  if (known_to_all || (error.code == ErrorCode::kInvalid && !begun_)) throw;
  CommunicatorAccess::fail(group_, error);
  throw Exception(group_.error().value());
}

}  // namespace rondo
