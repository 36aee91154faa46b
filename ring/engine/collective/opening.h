#pragma once

#include "ring/plan/plan.h"

namespace rondo {

// The first operation of a communicator: signals to both neighbors on the ring, then waits for both, on every lane.
Plan opening_plan(int rank, int world, int lanes);

}  // namespace rondo
