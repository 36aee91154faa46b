#pragma once

#include <string>

#include "bench/options.h"
#include "ring/plan/cost_model.h"
#include "rondo/communicator.h"

namespace rondo::bench {

// The model that --calibrate starts from: what its file says, where there is one, else the defaults. Throws
// Exception(kInvalid) if the file is no cost model, or cannot be written.
CostModel calibration_base(const std::string& path);

// Measures on all ranks of the communicator, collectively; rank 0 prints what was found, and writes the file: what
// this world has no pairs for stays as in `base`. Returns the exit code. Throws Exception(kSystem) if it cannot write.
int run_calibration(Communicator& communicator, const Options& options, const CostModel& base);

}  // namespace rondo::bench
