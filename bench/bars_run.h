#pragma once

#include "bench/limit_cache.h"
#include "bench/machine.h"
#include "bench/options.h"

namespace rondo::bench {

// --runs interleaved runs of Rondo, its peers, raw TCP and a bare exchange, in the worlds that the bars are about (with
// --ranks and --transport: those of that world and transport); publishes them as compare.h says. Returns 1 if a bar is
// missed or a ratio fell, else 0. Throws Exception(kSystem) if raw TCP cannot be measured. Forks: before this process
// has threads.
int run_bars(const Options& options, const Machine& machine, const LimitCache& cache);

}  // namespace rondo::bench
