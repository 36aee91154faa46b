#include "ring/engine/progress/operation.h"

#include "ring/engine/progress/progress_engine.h"

namespace rondo {

bool Operation::wait(Clock::time_point until) {
  if (done()) return true;
  if (!engine) {
    throw Exception(ErrorCode::kInvalid, "wait for a call of a batch that has not ended: it starts with batch_end()");
  }
  return engine->wait(*this, until);
}

}  // namespace rondo
