#include "bench/limit/limit.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <new>
#include <string>

#include "bench/limit/congestion.h"
#include "bench/limit/processes.h"
#include "bench/limit/raw_rank.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

TEST_CASE("settings: transfers x driving x connections x memory, no transfer beyond its share") {
  CHECK(limit_settings("reno", 64u << 20).size() == 2 * 2 * 3 * 2);
  CHECK(limit_settings("reno", 1u << 20).size() == 3 * 3 * 2);  // 4 connections carry 256 KiB each
  CHECK(setting_text({1 << 20, Driving::kTwoThreads, "reno", 2, Memory::kRelay}) ==
        "1 MiB transfers, two threads, reno, 2 connections, relay");
}

TEST_CASE("a buffer that is smaller than any transfer is refused by its size") {
  CHECK(limit_settings("reno", kLeastTransferBytes).size() == 3 * 2);
  CHECK(limit_settings("reno", kLeastTransferBytes - 1).empty());
  CHECK_THROWS_WITH_AS(measure_stream_limit(2, 64 << 10),
                       "raw TCP is measured in transfers of 256 KiB, and a buffer of 64 KiB has none", Exception);
}

TEST_CASE("the best setting is found though a worse one was lucky once, and its rate is the best of its last round") {
  const std::vector<RawSetting> settings = limit_settings("reno", 64u << 20);
  const RawSetting best = settings[17], lucky = settings[7];
  std::map<std::string, int> measured;
  int calls = 0;
  const SettingRate found = best_setting(settings, [&](const RawSetting& setting, double) {
    ++calls;
    const int times = ++measured[setting_text(setting)];
    if (setting == best) return times == 3 ? 3.5 : 3.0;
    return setting == lucky && times == 1 ? 9.0 : 1.0;
  });
  CHECK(measured.size() == settings.size());
  CHECK(calls == 24 + 4 * 3);
  CHECK(found.setting == best);
  CHECK(found.gbps == 3.5);
}

TEST_CASE("limits: the higher one of a world and size counts, also for rows rounded down to whole elements") {
  Limits limits;
  limits.raise({3, 1u << 20, 1.5, "a"});
  limits.raise({4, 1u << 20, 1.0, "a"});
  limits.raise({3, 1u << 20, 2.5, "b"});
  limits.raise({3, 1u << 20, 2.0, "c"});
  CHECK(limits.streams.size() == 2);
  CHECK(limits.stream(3, 1u << 20)->gbps == 2.5);
  CHECK(limits.stream(3, (1u << 20) - 4)->setting == "b");
  CHECK_FALSE(limits.stream(3, 1u << 19).has_value());
  CHECK_FALSE(limits.stream(2, 1u << 20).has_value());
}

TEST_CASE("the congestion control in force is one that sockets may have") {
  const std::vector<std::string> allowed = allowed_congestion_controls();
  CHECK(std::find(allowed.begin(), allowed.end(), congestion_in_force()) != allowed.end());
}

// What rank 0 of a ring of so many ranks measures.
double measured(int world, uint64_t bytes, const std::function<double(RawRank&)>& measure) {
  const SharedArea area(sizeof(double));
  auto& result = *new (area.get()) double{};
  run_ring(world, bytes, [&](RawRank& rank) { result = measure(rank); });
  return result;
}

TEST_CASE(
    "raw TCP: real processes move bytes in every driving and memory, over 1 and 4 connections, in worlds 2 and 3") {
  for (int world : {2, 3}) {
    const double slowest = measured(world, 1 << 20, [&](RawRank& rank) {
      double least = 1e9, most = 0;
      for (int driving = 0; driving < kDrivings; ++driving) {
        for (int memory = 0; memory < kMemories; ++memory) {
          for (int connections : {1, 4}) {
            const RawSetting setting{65536, static_cast<Driving>(driving), default_congestion_control(), connections,
                                     static_cast<Memory>(memory)};
            const double gbps = rank.stream_gbps(setting, 1 << 20, 0.02);
            least = std::min(least, gbps);
            most = std::max(most, gbps);
          }
        }
      }
      return most < 1000 ? least : 0;
    });
    INFO("world ", world);
    CHECK(slowest > 0.001);
  }
}

TEST_CASE("raw TCP: an exchange of 8 bytes takes between 0.1 us and 100 ms") {
  const double us =
      measured(2, 4096, [](RawRank& rank) { return rank.exchange_us(default_congestion_control(), 0.01); });
  CHECK(us > 0.1);
  CHECK(us < 100'000);
}

TEST_CASE("raw TCP: a congestion control that does not exist is an error that says so, not a hang") {
  const RawSetting setting{65536, Driving::kPoll, "nonesuch", 1, Memory::kWalk};
  CHECK_THROWS_WITH_AS(measured(2, 4096, [&](RawRank& rank) { return rank.stream_gbps(setting, 4096, 0.05); }),
                       doctest::Contains("TCP_CONGESTION"), Exception);
}

TEST_CASE("all ranks of a measurement get the same time; one that dies ends the others with an error") {
  const SharedArea area(3 * sizeof(double));
  auto* times = new (area.get()) double[3]{};
  run_in_processes(3, [&](Measurer& process) { times[process.rank()] = process.batch_us(0.01, 0.5, [] {}); });
  CHECK(times[0] > 0);
  CHECK(times[1] == times[0]);
  CHECK(times[2] == times[0]);
  const auto dies = [](Measurer& process) {
    if (process.rank() == 1) raise(SIGKILL);
    process.meet();
  };
  CHECK_THROWS_AS(run_in_processes(2, dies), Exception);
}

}  // namespace
}  // namespace rondo::bench
