#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/raw_setting.h"

namespace rondo::bench {

// The smallest buffer with a bandwidth limit: below it, time is latency and a share of bandwidth says nothing.
inline constexpr uint64_t kLimitFromBytes = 1 << 20;
// A share of the limit above this is an error of the bench: nothing is faster than the best raw transfer.
inline constexpr double kHighestShare = 1.05;

// A limit that is measured again is the best of so many settings.
inline constexpr size_t kLimitSettings = 3;

// The best that raw TCP over loopback does, for ranks that all send and receive at once.
struct StreamLimit {
  int world = 0;
  uint64_t bytes = 0;                  // of each rank's buffer
  double gbps = 0;                     // that each rank sends, and receives meanwhile
  RawSetting setting;                  // that reached it
  std::vector<RawSetting> runners_up;  // the next best; on another day one of them may win
  bool operator==(const StreamLimit&) const = default;
};

// The least time in which every rank sends 8 bytes to the next one and has those of the one before.
struct ExchangeLimit {
  int world = 0;
  double us = 0;
  std::string congestion;
  bool operator==(const ExchangeLimit&) const = default;
};

struct Limits {
  std::vector<StreamLimit> streams;
  std::vector<ExchangeLimit> exchanges;

  std::optional<StreamLimit> stream(int world, uint64_t bytes) const;
  std::optional<ExchangeLimit> exchange(int world) const;
  // Replaces an entry of the same world (and bytes).
  void put(const StreamLimit& limit);
  void put(const ExchangeLimit& limit);
};

// GB/s of one setting, measured for so many seconds.
using MeasureStream = std::function<double(const RawSetting&, double seconds)>;

struct SweepResult {
  RawSetting setting;
  double gbps = 0;
};
// The best 3 of many settings, best first, in three rounds: all of them briefly, the best 12 for longer, the best 3
// three times in turn. Rates are the best of the last round. Requires at least one setting.
std::vector<SweepResult> sweep(const std::vector<RawSetting>& settings, const MeasureStream& measure);
// The last round alone.
std::vector<SweepResult> play_finals(const std::vector<RawSetting>& settings, const MeasureStream& measure);

// Measure on this machine (raw_ring.h: before this process has threads). Throws Exception(kSystem).
StreamLimit measure_stream_limit(int world, uint64_t bytes);
// The best of the settings with such memory alone.
StreamLimit measure_stream_limit(int world, uint64_t bytes, Memory memory);
// What the settings of an earlier limit reach now; a second and a half instead of a quarter of a minute.
StreamLimit measure_again(const StreamLimit& earlier);
ExchangeLimit measure_exchange_limit(int world);

}  // namespace rondo::bench
