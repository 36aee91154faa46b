#pragma once

#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/output/machine.h"

namespace rondo::bench {

// Whether a launcher's variables say which rank this process is. Throws Exception(kInvalid) where they say it by half.
bool started_by_launcher(const Options& options);

// The ways to have ranks. Each returns the exit code of the process.

// Starts --ranks processes of this program, waits for them, and leaves none behind.
// args: the command line of this process, which the ranks get as well.
int start_ranks(const Options& options, const Machine& machine, const std::vector<std::string>& args);

// --ranks threads of this process.
int run_inproc(const Options& options, const Machine& machine);

// One rank, started by start_ranks() or by a launcher.
int run_rank(const Options& options, const Machine& machine);

}  // namespace rondo::bench
