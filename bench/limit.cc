#include "bench/limit.h"

#include <algorithm>

#include "bench/raw_ring.h"
#include "ring/base/check.h"

namespace rondo::bench {
namespace {

// With 216 settings: 216 x 0.03 s, 12 x 0.1 s, 9 x 0.15 s and their warm-ups of a third are about 12 s a buffer size.
// Warm connections (raw_rank.h) are why so little is enough; seldom does the best setting of a long measurement come
// out below place 12 of the short one.
constexpr double kFirstSeconds = 0.03;
constexpr double kSecondSeconds = 0.1;
constexpr double kLastSeconds = 0.15;
constexpr size_t kSecondSettings = 12;
constexpr int kLastTimes = 3;
constexpr double kExchangeSeconds = 0.3;

// What each rank sends in an all_reduce: a batch lasts as long as the operation that it is compared with, and is as
// likely to be disturbed.
uint64_t batch_bytes(int world, uint64_t bytes) {
  const auto ranks = static_cast<uint64_t>(world);
  return 2 * (ranks - 1) * bytes / ranks;
}

// Batches of the first round are cut short: enough to tell good settings from bad ones.
constexpr uint64_t kFirstBatch = 8u << 20;
MeasureStream measure_by(RawRing& ring, int world, uint64_t bytes) {
  return [&ring, batch = batch_bytes(world, bytes)](const RawSetting& setting, double seconds) {
    return ring.stream_gbps(setting, seconds <= kFirstSeconds ? std::min(batch, kFirstBatch) : batch, seconds);
  };
}

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

std::vector<SweepResult> unmeasured(const std::vector<RawSetting>& settings) {
  std::vector<SweepResult> out;
  for (const RawSetting& setting : settings) out.push_back({setting, 0});
  return out;
}

StreamLimit limit_of(int world, uint64_t bytes, const std::vector<SweepResult>& best) {
  StreamLimit limit{world, bytes, best.front().gbps, best.front().setting, {}};
  for (size_t i = 1; i < best.size(); ++i) limit.runners_up.push_back(best[i].setting);
  return limit;
}

StreamLimit best_of(int world, uint64_t bytes, const std::vector<RawSetting>& settings) {
  RawRing ring(world, bytes);
  return limit_of(world, bytes, sweep(settings, measure_by(ring, world, bytes)));
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

std::vector<SweepResult> sweep(const std::vector<RawSetting>& settings, const MeasureStream& measure) {
  RONDO_CHECK(!settings.empty(), "a sweep over nothing");
  std::vector<SweepResult> candidates = unmeasured(settings);
  play_round(candidates, measure, kFirstSeconds, 1, kSecondSettings);
  play_round(candidates, measure, kSecondSeconds, 1, kLimitSettings);
  play_round(candidates, measure, kLastSeconds, kLastTimes, kLimitSettings);
  return candidates;
}

std::vector<SweepResult> play_finals(const std::vector<RawSetting>& settings, const MeasureStream& measure) {
  RONDO_CHECK(!settings.empty(), "finals of nothing");
  std::vector<SweepResult> candidates = unmeasured(settings);
  play_round(candidates, measure, kLastSeconds, kLastTimes, kLimitSettings);
  return candidates;
}

StreamLimit measure_stream_limit(int world, uint64_t bytes) {
  return best_of(world, bytes, all_settings(allowed_congestion_controls(), bytes));
}

StreamLimit measure_stream_limit(int world, uint64_t bytes, Memory memory) {
  std::vector<RawSetting> settings = all_settings(allowed_congestion_controls(), bytes);
  std::erase_if(settings, [&](const RawSetting& setting) { return setting.memory != memory; });
  return best_of(world, bytes, settings);
}

StreamLimit measure_again(const StreamLimit& earlier) {
  RawRing ring(earlier.world, earlier.bytes);
  std::vector<RawSetting> settings{earlier.setting};
  settings.insert(settings.end(), earlier.runners_up.begin(), earlier.runners_up.end());
  return limit_of(earlier.world, earlier.bytes, play_finals(settings, measure_by(ring, earlier.world, earlier.bytes)));
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
