#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/limit_cache.h"
#include "bench/machine.h"
#include "bench/options.h"
#include "bench/row.h"

namespace rondo::bench {

// The file that keeps limits: --limit-cache, else the user's cache directory, else `fallback`.
LimitCache open_cache(const Options& options, const Machine& machine, const std::string& fallback);

// What raw TCP does now, in this world and for the wanted sizes: by the settings that the cache names as the best ones,
// or by all settings where it names none (and for all sizes with kRemeasure). Kept in the cache. The exchange of 8
// bytes is measured where every rank can have a core, once. Forks: call it before this process has threads. Without
// wanted sizes: what the cache has. Throws Exception(kSystem).
Limits obtain_limits(const LimitCache& cache, Options::LimitUse use, int world, const std::vector<uint64_t>& sizes,
                     const Machine& machine, const std::function<void(const std::string&)>& on_progress);

// The limit that a row is compared with.
std::optional<StreamLimit> limit_of_row(const Limits& limits, const Row& row);

// The sizes of limits that a row exceeds by more than kHighestShare: they were measured in a worse moment, or not by
// the best setting.
std::vector<uint64_t> impossible_sizes(const std::vector<Row>& rows, const Limits& limits);

// Of each world and size the higher one.
void raise_limits(Limits& limits, const Limits& again);

}  // namespace rondo::bench
