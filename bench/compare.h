#pragma once

#include <string>
#include <vector>

#include "bench/bars.h"
#include "bench/contest.h"
#include "bench/machine.h"
#include "bench/options.h"

namespace rondo::bench {

// The questions of a comparison: each transport, and TCP both as the machine is and, where it paces, under reno.
std::vector<Question> questions_of(const Options& options, const Machine& machine);

// Asks all libraries of --compare interleaved, --runs times, and publishes. Forks: before this process has threads.
int run_compare(const Options& options, const Machine& machine);

// Prints medians, and each program that was run, and the bars judged; writes --json, --csv and --write-baseline; judges
// by --baseline. Returns the exit code: 1 if a ratio fell, if a bar is missed, or if nothing of ours could be measured.
int publish(const Options& options, const Machine& machine, const std::vector<Contest>& contests,
            const std::vector<Judged>& bars = {});

}  // namespace rondo::bench
