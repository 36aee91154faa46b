#include "tests/simulation/script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

namespace rondo::testing::sim {
namespace {

Config config_of(Random& random) {
  Config config;
  config.transport = "tcp";
  config.insecure = true;
  config.debug = "off";
  config.spin_us = random.chance(80) ? 0 : 20;
  config.start_timeout_ms = 20'000;
  config.handshake_timeout_ms = 2'000;
  config.timeout_ms = 60'000;
  config.destroy_timeout_ms = 2'000;
  config.heartbeat_ms = 500;
  config.suspicion_ms = static_cast<int64_t>(random.between(3, 6) * 500);
  config.slice_bytes = 4096;
  config.slices_per_chunk = static_cast<uint32_t>(random.between(1, 3));
  config.connections = static_cast<uint32_t>(random.between(1, 2));
  config.eager_bytes = 256;
  return config;
}

Fault fault_of(Random& random, const Script& script, uint64_t length) {
  using Kind = Fault::Kind;
  constexpr Kind kKinds[] = {Kind::kCrash,  Kind::kCrash,     Kind::kCrash,   Kind::kPower,  Kind::kStop,  Kind::kStop,
                             Kind::kOneWay, Kind::kPartition, Kind::kSilence, Kind::kForget, Kind::kReject};
  Fault fault;
  fault.kind = kKinds[random.below(std::size(kKinds))];
  const uint64_t processes = script.host.size() + static_cast<uint64_t>(script.newcomers);
  const auto hosts = static_cast<uint64_t>(script.host.back()) + 1;
  fault.step = random.below(length * processes);
  const bool process = fault.kind == Kind::kCrash || fault.kind == Kind::kStop;
  fault.one = static_cast<int>(random.below(process ? processes : hosts));
  fault.other = static_cast<int>(random.below(hosts));
  const uint64_t lasts_ms = random.chance(50) ? random.between(1, 500) : random.between(500, 8'000);
  fault.lasts = static_cast<Time>(lasts_ms) * kMillisecond;
  return fault;
}

}  // namespace

const char* name_of(Fault::Kind kind) {
  constexpr const char* kNames[] = {"crash", "power", "stop", "one-way", "partition", "silence", "forget", "reject"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Script::text() const {
  std::string all = fmt::format("seed {}: hosts {}, {} newcomers, {} steps, suspicion {} ms", seed,
                                fmt::join(host, " "), newcomers, steps, config.suspicion_ms);
  for (const Fault& fault : faults) {
    all += fmt::format("; {} {} {} before step {} for {} ms", name_of(fault.kind), fault.one, fault.other, fault.step,
                       fault.lasts / kMillisecond);
  }
  return all;
}

Script script_of(uint64_t seed, uint64_t length) {
  Random random(seed * 7919 + 1);
  Script script;
  script.seed = seed;
  const int world = static_cast<int>(random.between(2, random.chance(10) ? 7 : 4));
  const uint64_t places = random.below(3);  // on one host, on one each, two on each
  for (int rank = 0; rank < world; ++rank) {
    script.host.push_back(places == 0 ? 0 : places == 1 ? rank : rank / 2);
  }
  if (random.chance(30)) script.newcomers = static_cast<int>(random.between(1, 2));
  script.config = config_of(random);
  script.network.latency = static_cast<Time>(random.between(10, 500)) * kMicrosecond;
  script.network.buffer_bytes = random.chance(50) ? 8 * 1024 : 64 * 1024;
  script.network.lost_percent = random.chance(10) ? 1 : 0;
  for (uint64_t faults = random.below(4); faults > 0; --faults) {
    script.faults.push_back(fault_of(random, script, length));
  }
  return script;
}

}  // namespace rondo::testing::sim
