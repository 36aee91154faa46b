#include "ring/engine/operation.h"

#include "ring/engine/driver.h"

namespace rondo {

bool Operation::wait(Clock::time_point until) {
  if (done()) return true;
  if (!driver) {
    throw Exception(ErrorCode::kInvalid, "wait for a call of a batch that has not ended: it starts with batch_end()");
  }
  return driver->wait(*this, until);
}

}  // namespace rondo
