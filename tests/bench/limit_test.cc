#include "bench/limit.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "bench/children.h"
#include "bench/json.h"
#include "bench/limit_cache.h"
#include "bench/raw_ring.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

TEST_CASE("settings: transfers x driving x congestion controls x connections, no transfer beyond its share") {
  CHECK(all_settings({"reno", "bbr"}, 64u << 20).size() == 2 * 5 * 4 * 2 * 3);
  // Shares of 1 MiB, 512 KiB and 256 KiB; a pipeline needs room for four transfers.
  CHECK(all_settings({"reno"}, 1u << 20).size() == 2 * (4 * (3 + 2 + 2) + 2 + 1 + 1));
  CHECK(all_settings({"reno"}, 4096).size() == 2 * 5 * 3);
  CHECK(setting_text({1 << 20, Driving::kTwoThreads, "reno", 2, Memory::kRelay}) ==
        "1 MiB transfers, two threads, reno, 2 connections, relay");
}

TEST_CASE("a sweep measures every setting, and finds the best one though a worse one was lucky once") {
  const std::vector<RawSetting> settings = all_settings({"a", "b"}, 64u << 20);
  const RawSetting best = settings[41], lucky = settings[7];
  std::map<std::string, int> measured;
  int calls = 0;
  const std::vector<SweepResult> results = sweep(settings, [&](const RawSetting& setting, double seconds) {
    ++calls;
    const int times = ++measured[setting_text(setting)];
    CHECK(seconds <= 0.15);
    if (setting == best) return 3.0;
    return setting == lucky && times == 1 ? 9.0 : 1.0;
  });
  CHECK(measured.size() == settings.size());
  REQUIRE(results.size() == 3);
  CHECK(results[0].setting == best);
  CHECK(results[0].gbps == 3.0);
  CHECK(calls == 240 + 12 + 9);
}

TEST_CASE("finals measure a few settings three times each, and put the best of their best times first") {
  const std::vector<RawSetting> settings = {all_settings({"a"}, 64u << 20)[0], all_settings({"a"}, 64u << 20)[1]};
  int calls = 0;
  const auto measure = [&](const RawSetting& setting, double) {
    ++calls;
    return setting == settings[1] && calls == 4 ? 5.0 : 1.0;  // once, in the second turn
  };
  const std::vector<SweepResult> results = play_finals(settings, measure);
  REQUIRE(results.size() == 2);
  CHECK(calls == 6);
  CHECK(results[0].setting == settings[1]);
  CHECK(results[0].gbps == 5.0);
}

TEST_CASE("limits: one a world and size; a newer one replaces it") {
  Limits limits;
  limits.put(StreamLimit{2, 1024, 1.5, {}, {}});
  limits.put(StreamLimit{4, 1024, 1.0, {}, {}});
  limits.put(StreamLimit{2, 1024, 2.5, {}, {}});
  limits.put(ExchangeLimit{2, 5.0, "reno"});
  CHECK(limits.streams.size() == 2);
  CHECK(limits.stream(2, 1024)->gbps == 2.5);
  CHECK_FALSE(limits.stream(2, 2048).has_value());
  CHECK(limits.exchange(2)->us == 5.0);
  CHECK_FALSE(limits.exchange(4).has_value());
}

TEST_CASE("the cache keeps limits by machine, adds to what is there, and survives a broken file") {
  PrivateDirectory directory;
  const std::string path = directory.path() + "/deep/limits.json";
  Limits first, second;
  const RawSetting relay{65536, Driving::kSpin, "reno", 4, Memory::kRelay};
  first.put(StreamLimit{2, 1024, 1.5, relay, {{4096, Driving::kPipeline, "bbr", 1, Memory::kWalk}}});
  second.put(ExchangeLimit{2, 5.0, "bbr"});
  const LimitCache cache(path, "machine a");
  CHECK(cache.load().streams.empty());
  CHECK(cache.save(first));
  CHECK(cache.save(second));
  CHECK(cache.load().streams == first.streams);
  CHECK(cache.load().exchanges == second.exchanges);
  CHECK(LimitCache(path, "machine b").load().streams.empty());
  CHECK(LimitCache(path, "machine b").save(second));
  CHECK(cache.load().streams == first.streams);
  for (const char* broken : {"", "{", "[]", "{\"version\":1}", "{\"version\":1,\"machines\":{\"machine a\":7}}",
                             "{\"version\":2,\"machines\":{}}"}) {
    std::ofstream(path, std::ios::trunc) << broken;
    CHECK(cache.load().streams.empty());
    CHECK(cache.save(first));
    CHECK(cache.load().streams == first.streams);
  }
}

TEST_CASE("a cache that cannot be written says so and is no failure") {
  CHECK_FALSE(LimitCache("/proc/nowhere/limits.json", "m").save({}));
}

TEST_CASE("the cache lies where XDG says, else under the home directory") {
  CHECK(default_cache_path("/x", "/home/u") == "/x/rondo/limits.json");
  CHECK(default_cache_path(nullptr, "/home/u") == "/home/u/.cache/rondo/limits.json");
  CHECK(default_cache_path("", "/home/u") == "/home/u/.cache/rondo/limits.json");
  CHECK(default_cache_path("relative", nullptr) == "");
}

TEST_CASE(
    "raw TCP: real processes move bytes in every driving and memory, over 1 and 4 connections, in worlds 2 and 3") {
  for (int world : {2, 3}) {
    RawRing ring(world, 1 << 20);
    for (int driving = 0; driving < kDrivings; ++driving) {
      for (int memory = 0; memory < kMemories; ++memory) {
        for (int connections : {1, 4}) {
          const RawSetting setting{65536, static_cast<Driving>(driving), default_congestion_control(), connections,
                                   static_cast<Memory>(memory)};
          INFO("world ", world, ": ", setting_text(setting));
          const double gbps = ring.stream_gbps(setting, 1 << 20, 0.02);
          CHECK(gbps > 0.001);
          CHECK(gbps < 1000);
        }
      }
    }
  }
}

TEST_CASE("raw TCP: an exchange of 8 bytes takes between 0.1 us and 100 ms") {
  RawRing ring(2, 4096);
  const double us = ring.exchange_us(default_congestion_control(), 0.01);
  CHECK(us > 0.1);
  CHECK(us < 100'000);
}

TEST_CASE("raw TCP: a congestion control that does not exist is an error that says so, not a hang") {
  RawRing ring(2, 4096);
  CHECK_THROWS_AS(ring.stream_gbps({65536, Driving::kPoll, "nonesuch", 1, Memory::kWalk}, 4096, 0.05), Exception);
}

}  // namespace
}  // namespace rondo::bench
