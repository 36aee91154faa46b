#pragma once

#include <string>
#include <vector>

#include "bench/contest.h"
#include "bench/machine.h"
#include "bench/options.h"

namespace rondo::bench {

// The questions of a comparison: each transport, and TCP both as the machine is and, where it paces, under reno.
std::vector<Question> questions_of(const Options& options, const Machine& machine);

// Asks all libraries of --compare interleaved, --runs times; prints medians, and each program that was run. Writes
// --json, --csv and --write-baseline, and judges by --baseline. Returns the exit code: 1 if a ratio fell, or if nothing
// of ours could be measured. Forks: before this process has threads.
int run_compare(const Options& options, const Machine& machine);

// Rows of all libraries, medians.
std::vector<Row> rows_of(const std::vector<Contest>& contests);

}  // namespace rondo::bench
