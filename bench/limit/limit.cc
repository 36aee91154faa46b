#include "bench/limit/limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "bench/limit/congestion.h"
#include "bench/limit/processes.h"
#include "bench/limit/raw_rank.h"
#include "bench/loop/sizes.h"
#include "ring/base/check.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

// All 24 settings briefly, then the best of them three times in turn: 2.5 s a buffer size.
constexpr double kBriefly = 0.03, kLonger = 0.1;
constexpr size_t kFinalists = 4;
constexpr int kTurns = 3;
// Long enough for hundreds of batches; the exchange needs no more than its 8 bytes of buffer.
constexpr double kExchangeSeconds = 0.3;
constexpr uint64_t kExchangeBuffer = 4096;
// A row's bytes are the wanted size rounded down to whole elements of all ranks: less than 8 bytes for each of them.
constexpr uint64_t kRoundingBytes = 8 * 1024;

// What each rank sends in an all_reduce: a batch lasts as long as the operation that it is compared with, and is as
// likely to be disturbed.
uint64_t batch_bytes(int world, uint64_t bytes) {
  const auto ranks = static_cast<uint64_t>(world);
  return 2 * (ranks - 1) * bytes / ranks;
}

}  // namespace

std::optional<StreamLimit> Limits::stream(int world, uint64_t bytes) const {
  for (const StreamLimit& limit : streams) {
    if (limit.world == world && limit.bytes >= bytes && limit.bytes - bytes < kRoundingBytes) return limit;
  }
  return std::nullopt;
}

void Limits::raise(const StreamLimit& limit) {
  for (StreamLimit& known : streams) {
    if (known.world != limit.world || known.bytes != limit.bytes) continue;
    if (known.gbps < limit.gbps) known = limit;
    return;
  }
  streams.push_back(limit);
}

// Settings are measured in turns, so a disturbance of the machine hits all alike.
SettingRate best_setting(const std::vector<RawSetting>& settings, const MeasureStream& measure) {
  RONDO_CHECK(!settings.empty(), "the best of no settings");
  std::vector<SettingRate> rates;
  for (const RawSetting& setting : settings) rates.push_back({setting, measure(setting, kBriefly)});
  const auto faster = [](const SettingRate& a, const SettingRate& b) { return a.gbps > b.gbps; };
  std::stable_sort(rates.begin(), rates.end(), faster);
  rates.resize(std::min(rates.size(), kFinalists));
  for (SettingRate& rate : rates) rate.gbps = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (SettingRate& rate : rates) rate.gbps = std::max(rate.gbps, measure(rate.setting, kLonger));
  }
  return *std::min_element(rates.begin(), rates.end(), faster);
}

StreamLimit measure_stream_limit(int world, uint64_t bytes, std::optional<Memory> memory) {
  std::vector<RawSetting> settings = limit_settings(congestion_in_force(), bytes);
  if (settings.empty()) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("raw TCP is measured in transfers of {}, and a buffer of {} has none",
                                size_text(kLeastTransferBytes), size_text(bytes)));
  }
  if (memory) std::erase_if(settings, [&](const RawSetting& setting) { return setting.memory != *memory; });
  StreamLimit limit{world, bytes, 0, ""};
  struct Found {
    double gbps;
    size_t setting;
  };
  const SharedArea area(sizeof(Found));
  // Shared with the forked ranks, which write it; this process reads it when they have ended.
  auto& found = *new (area.get()) Found{};
  run_ring(world, bytes, [&](RawRank& rank) {
    const SettingRate best = best_setting(settings, [&](const RawSetting& setting, double seconds) {
      return rank.stream_gbps(setting, batch_bytes(world, bytes), seconds);
    });
    // The same on all ranks.
    found = {best.gbps,
             static_cast<size_t>(std::find(settings.begin(), settings.end(), best.setting) - settings.begin())};
  });
  limit.gbps = found.gbps;
  limit.setting = setting_text(settings.at(found.setting));
  return limit;
}

double measure_exchange_us(int world) {
  const SharedArea area(sizeof(double));
  auto& us = *new (area.get()) double{};
  run_ring(world, kExchangeBuffer,
           [&](RawRank& rank) { us = rank.exchange_us(congestion_in_force(), kExchangeSeconds); });
  return us;
}

}  // namespace rondo::bench
