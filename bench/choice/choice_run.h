#pragma once

#include "bench/options.h"
#include "rondo/communicator.h"

namespace rondo::bench {

// --check-choice: measures what the library chooses beside each way to run the same calls that gives the same bits, on
// all ranks of the communicator, collectively; rank 0 prints a line for each collective and size. Returns 1 if a bound
// is missed (docs/bench.md), on all ranks.
int run_choice_check(Communicator& communicator, const Options& options);

}  // namespace rondo::bench
