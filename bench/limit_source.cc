#include "bench/limit_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "bench/sizes.h"

namespace rondo::bench {

LimitCache open_cache(const Options& options, const Machine& machine, const std::string& fallback) {
  std::string path = options.limit_cache;
  if (path.empty()) path = default_cache_path(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
  return {path.empty() ? fallback : path, machine.key()};
}

Limits obtain_limits(const LimitCache& cache, Options::LimitUse use, int world, const std::vector<uint64_t>& sizes,
                     const Machine& machine, const std::function<void(const std::string&)>& on_progress) {
  const bool again = use == Options::LimitUse::kRemeasure;
  Limits limits = cache.load();
  // Kept one by one: what follows may fail or be interrupted.
  const auto keep = [&](const auto& limit) {
    Limits fresh;
    fresh.put(limit);
    limits.put(limit);
    cache.save(fresh);
  };
  for (uint64_t bytes : sizes) {
    if (!again && limits.stream(world, bytes)) continue;
    on_progress(fmt::format("measuring raw TCP: {} ranks, {} (kept in {})", world, size_text(bytes), cache.path()));
    keep(measure_stream_limit(world, bytes));
  }
  if (!sizes.empty() && world <= machine.cores && (again || !limits.exchange(world))) {
    on_progress(fmt::format("measuring raw TCP: {} ranks, exchange of 8 bytes", world));
    keep(measure_exchange_limit(world));
  }
  return limits;
}

bool has_impossible_share(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const Row& row) { return row.share_of_limit.value_or(0) > kHighestShare; });
}

}  // namespace rondo::bench
