#pragma once

#include <functional>
#include <string>

#include "bench/limit_cache.h"
#include "bench/machine.h"
#include "bench/options.h"
#include "bench/row.h"

namespace rondo::bench {

// The file that keeps limits: --limit-cache, else the user's cache directory, else `fallback`.
LimitCache open_cache(const Options& options, const Machine& machine, const std::string& fallback);

// What the cache knows about this world and, for the wanted sizes that it lacks (all of them with kRemeasure), what
// this machine does now, which is kept. The exchange of 8 bytes is measured where every rank can have a core. Forks:
// call it before this process has threads. Without wanted sizes: what the cache has. Throws Exception(kSystem).
Limits obtain_limits(const LimitCache& cache, Options::LimitUse use, int world, const std::vector<uint64_t>& sizes,
                     const Machine& machine, const std::function<void(const std::string&)>& on_progress);

// Rows whose share says that they were faster than the best raw transfer: the limit was measured in a worse moment.
bool has_impossible_share(const std::vector<Row>& rows);

}  // namespace rondo::bench
