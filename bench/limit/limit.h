#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/limit/raw_setting.h"

namespace rondo::bench {

// The smallest buffer with a bandwidth limit: below it, time is latency and a share of bandwidth says nothing.
inline constexpr uint64_t kLimitFromBytes = 1 << 20;
// A share of the limit above this means that the limit was measured in a worse moment: nothing is faster than raw TCP.
inline constexpr double kHighestShare = 1.05;

// The best that raw TCP over loopback does, for ranks that all send and receive at once.
struct StreamLimit {
  int world = 0;
  uint64_t bytes = 0;   // of each rank's buffer
  double gbps = 0;      // that each rank sends, and receives meanwhile
  std::string setting;  // that reached it
  bool operator==(const StreamLimit&) const = default;
};

// What is known of the machine in one world.
struct Limits {
  std::vector<StreamLimit> streams;
  double exchange_us = 0;  // a bare exchange of 8 bytes; 0: not measured

  // The limit of a buffer of that size, or up to a few elements a rank more.
  std::optional<StreamLimit> stream(int world, uint64_t bytes) const;
  // Keeps the higher limit of each world and size.
  void raise(const StreamLimit& limit);
};

// GB/s of one setting, measured for that many seconds.
using MeasureStream = std::function<double(const RawSetting&, double seconds)>;

struct SettingRate {
  RawSetting setting;
  double gbps = 0;
};
// The best of all: each briefly, then the best four three times in turn. Requires at least one setting.
SettingRate best_setting(const std::vector<RawSetting>& settings, const MeasureStream& measure);

// Measure on this machine (they fork: before this process has threads). memory: the settings with such memory alone.
// Throw Exception: kSystem; kInvalid for a buffer below kLeastTransferBytes.
StreamLimit measure_stream_limit(int world, uint64_t bytes, std::optional<Memory> memory = {});
double measure_exchange_us(int world);

}  // namespace rondo::bench
