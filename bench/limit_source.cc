#include "bench/limit_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "bench/sizes.h"

namespace rondo::bench {

namespace {

// A row's bytes are the wanted size rounded down to whole elements of all ranks: less than 8 bytes for each of them.
constexpr uint64_t kRoundingBytes = 8 * 1024;

}  // namespace

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
    const std::optional<StreamLimit> earlier = limits.stream(world, bytes);
    const bool sweeps = again || !earlier;
    on_progress(fmt::format("measuring raw TCP: {} ranks, {}{}", world, size_text(bytes),
                            sweeps ? " (settings are kept in " + cache.path() + ")" : ""));
    keep(sweeps ? measure_stream_limit(world, bytes) : measure_again(*earlier));
  }
  if (!sizes.empty() && world <= machine.cores && (again || !limits.exchange(world))) {
    on_progress(fmt::format("measuring raw TCP: {} ranks, exchange of 8 bytes", world));
    keep(measure_exchange_limit(world));
  }
  return limits;
}

std::optional<StreamLimit> limit_of_row(const Limits& limits, const Row& row) {
  const auto fits = [&](const StreamLimit& limit) {
    return limit.world == row.world && limit.bytes >= row.bytes && limit.bytes - row.bytes < kRoundingBytes;
  };
  const auto found = std::find_if(limits.streams.begin(), limits.streams.end(), fits);
  return found == limits.streams.end() ? std::nullopt : std::optional(*found);
}

std::vector<uint64_t> impossible_sizes(const std::vector<Row>& rows, const Limits& limits) {
  std::set<uint64_t> sizes;
  for (const Row& row : rows) {
    if (row.share_of_limit.value_or(0) <= kHighestShare) continue;
    if (const std::optional<StreamLimit> limit = limit_of_row(limits, row)) sizes.insert(limit->bytes);
  }
  return {sizes.begin(), sizes.end()};
}

void raise_limits(Limits& limits, const Limits& again) {
  for (const StreamLimit& limit : again.streams) {
    const std::optional<StreamLimit> known = limits.stream(limit.world, limit.bytes);
    if (!known || known->gbps < limit.gbps) limits.put(limit);
  }
}

}  // namespace rondo::bench
