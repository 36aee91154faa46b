#pragma once

#include "bench/limit.h"
#include "bench/limit_cache.h"
#include "bench/options.h"

namespace rondo::bench {

// Five interleaved runs of raw TCP, a bare exchange, Gloo's rings (if its driver is there) and Rondo, world 2; prints
// each run and each bar. `limits` says which raw setting is the best one. Returns 1 if a bar fails or a result is
// wrong, else 0. Throws Exception(kSystem) if something cannot be run. Forks: before this process has threads.
int run_bars(const Options& options, const Limits& limits);

}  // namespace rondo::bench
