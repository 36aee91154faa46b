#include "bench/limit.h"

#include <algorithm>

#include "bench/raw_ring.h"
#include "ring/base/check.h"

namespace rondo::bench {
namespace {

// With 192 settings: 192 x 0.04 s, 8 x 0.12 s, 9 x 0.25 s and their warm-ups are about 15 s a buffer size.
constexpr double kFirstSeconds = 0.04;
constexpr double kSecondSeconds = 0.12;
constexpr double kLastSeconds = 0.25;
constexpr size_t kSecondSettings = 8;
constexpr size_t kLastSettings = 3;
constexpr int kLastTimes = 3;
constexpr double kExchangeSeconds = 0.3;

// Measures each candidate `times` times in turn, keeps the best rate of each, and leaves the best `keep`, best first.
void play_round(std::vector<SweepResult>& candidates, const MeasureStream& measure, double seconds, int times,
                size_t keep) {
  for (SweepResult& candidate : candidates) candidate.gbps = 0;
  for (int i = 0; i < times; ++i) {
    for (SweepResult& c : candidates) c.gbps = std::max(c.gbps, measure(c.setting, seconds));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const SweepResult& a, const SweepResult& b) { return a.gbps > b.gbps; });
  candidates.resize(std::min(candidates.size(), keep));
}

template <typename Entry, typename Same>
void put_entry(std::vector<Entry>& entries, const Entry& entry, Same same) {
  const auto found = std::find_if(entries.begin(), entries.end(), same);
  if (found == entries.end()) {
    entries.push_back(entry);
  } else {
    *found = entry;
  }
}

}  // namespace

std::optional<StreamLimit> Limits::stream(int world, uint64_t bytes) const {
  for (const StreamLimit& limit : streams) {
    if (limit.world == world && limit.bytes == bytes) return limit;
  }
  return std::nullopt;
}

std::optional<ExchangeLimit> Limits::exchange(int world) const {
  for (const ExchangeLimit& limit : exchanges) {
    if (limit.world == world) return limit;
  }
  return std::nullopt;
}

void Limits::put(const StreamLimit& limit) {
  put_entry(streams, limit, [&](const StreamLimit& l) { return l.world == limit.world && l.bytes == limit.bytes; });
}

void Limits::put(const ExchangeLimit& limit) {
  put_entry(exchanges, limit, [&](const ExchangeLimit& l) { return l.world == limit.world; });
}

SweepResult sweep(const std::vector<RawSetting>& settings, const MeasureStream& measure) {
  RONDO_CHECK(!settings.empty(), "a sweep over nothing");
  std::vector<SweepResult> candidates;
  for (const RawSetting& setting : settings) candidates.push_back({setting, 0});
  play_round(candidates, measure, kFirstSeconds, 1, kSecondSettings);
  play_round(candidates, measure, kSecondSeconds, 1, kLastSettings);
  play_round(candidates, measure, kLastSeconds, kLastTimes, 1);
  return candidates.front();
}

StreamLimit measure_stream_limit(int world, uint64_t bytes) {
  RawRing ring(world, bytes);
  const auto measure = [&](const RawSetting& setting, double seconds) { return ring.stream_gbps(setting, seconds); };
  const SweepResult best = sweep(all_settings(allowed_congestion_controls(), bytes), measure);
  return {world, bytes, best.gbps, best.setting};
}

ExchangeLimit measure_exchange_limit(int world) {
  RawRing ring(world, 4096);
  ExchangeLimit best{world, 0, ""};
  for (const std::string& congestion : allowed_congestion_controls()) {
    const double us = ring.exchange_us(congestion, kExchangeSeconds);
    if (best.congestion.empty() || us < best.us) best = {world, us, congestion};
  }
  return best;
}

}  // namespace rondo::bench
