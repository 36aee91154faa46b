#pragma once

#include <string>
#include <vector>

#include "bench/machine.h"
#include "bench/options.h"

namespace rondo::bench {

// The ways to have ranks. Each returns the exit code of the process.

// Starts --ranks processes of this program, waits for them, and leaves none behind.
// args: the command line of this process, which the ranks get as well.
int start_ranks(const Options& options, const Machine& machine, const std::vector<std::string>& args);

// --ranks threads of this process.
int run_inproc(const Options& options, const Machine& machine);

// One rank, started by start_ranks() or by a launcher.
int run_rank(const Options& options, const Machine& machine);

}  // namespace rondo::bench
