// Needs root and iproute2 (hosts.h): a third host between those of two ranks changes or slows what they say, or the
// network slows it.
#include "tests/faults/relay.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/faults/ranks.h"
#include "tests/support/secrets.h"

namespace rondo::testing {
namespace {

constexpr int kRelayHost = 2;
constexpr int64_t kSoonMs = 1'500;
constexpr uint16_t kFirstPort = 6'000, kLastPort = 6'007;
// What a call of 32 MiB may add to a rank, whatever the link: receive buffers.
constexpr int64_t kMostMemoryMiB = 16;

// Two hosts, all of whose connections go through a third.
struct Network {
  Network() {
    hosts.divert(0, 1, kRelayHost);
    hosts.divert(1, 0, kRelayHost);
  }
  static std::vector<uint16_t> ports() {
    std::vector<uint16_t> all{Hosts::kRendezvousPort};
    for (uint16_t port = kFirstPort; port <= kLastPort; ++port) all.push_back(port);
    return all;
  }
  void start(Job& job, const RankProcess::Body& body, Config config) const {
    config.data_ports = fmt::format("{}-{}", kFirstPort, kLastPort);
    hosts.start(job, {0, 1}, body, config);
  }
  Hosts hosts{3};
  Relay relay{hosts, kRelayHost, ports()};
};

// Both ranks sum until the relay flips a bit: what they end with.
void expect_corrupt(const Config& config, const char* what) {
  Network network;
  Job job;
  network.start(
      job,
      [](Here& here) {
        Communicator group = Communicator::join(here.options);
        here.say(sums_until(group, 0));
        here.say(sums_until(group, 30'000));
      },
      config);
  job.expect_all("ok");
  network.relay.flip_a_bit();
  const auto since = std::chrono::steady_clock::now();
  const std::string said = job[0].hear();
  CAPTURE(said);
  CHECK(said.find("CORRUPT [") == 0);
  CHECK(said.find("the data connection between rank ") != std::string::npos);
  for (const int rank : {0, 1}) CHECK(said.find(fmt::format("rank {} (host ", rank)) != std::string::npos);
  CHECK(said.find(what) != std::string::npos);
  CHECK(job[1].hear() == said);
  check_within(20, ms_since(since), kSoonMs);
}

Config short_calls() {
  Config config = fault_config();
  config.timeout_ms = 3'000;
  return config;
}

// Sums 32 MiB once, when it is told to: how it ends, and by how many MiB the rank grows.
void sum_large(Here& here) {
  Communicator group = Communicator::join(here.options);
  here.say(sums_until(group, 0));
  std::vector<float> values(8 << 20, 1);
  here.await();
  const size_t before = Resources::now().resident_bytes;
  here.say(here.timed([&] { group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32); }));
  here.say(fmt::format("{}", (Resources::now().resident_bytes - before) >> 20));
}

// `slow` makes the way of the job's bytes one of 1 KB/s.
void expect_timeout(Job& job, const std::function<void()>& slow) {
  job.expect_all("ok");
  slow();
  job.tell_all("go");
  for (RankProcess& rank : job.ranks) {
    const Timed said = timed_line(rank.hear(25'000));
    CAPTURE(said.outcome);
    CHECK(said.begins("TIMEOUT ["));
    check_within(21, said.elapsed_ms, short_calls().timeout_ms + 1'500);
    CHECK(std::stoll(rank.hear()) <= kMostMemoryMiB);
  }
}

}  // namespace

TEST_CASE("fault 20: a relay between two hosts flips one bit: CORRUPT on both, with the link; no sum is wrong") {
  expect_corrupt(fault_config(), "arrived damaged");
}

TEST_CASE("fault 20: the same where records are sealed") {
  TempFolder folder;
  Config config = fault_config();
  config.secret_file = make_secret(folder, "secret", "a secret of the two hosts' ranks");
  config.encrypt = true;
  expect_corrupt(config, "bytes were changed on their way");
}

TEST_CASE("without checksums, packed elements that are damaged on the way are CORRUPT on both, with the sender") {
  Network network;
  Config config = fault_config();
  config.checksum = "off";
  Job job;
  network.start(
      job,
      [](Here& here) {
        Communicator group = Communicator::join(here.options);
        std::vector<uint16_t> weights(100'000, 0x3fc2);  // bfloat16 1.515625
        const auto broadcast = [&] {
          group.broadcast(weights.data(), weights.size(), DType::kBfloat16, 0, {.wire = {WireFormat::kPacked}});
        };
        here.say(outcome(broadcast));
        here.say(outcome([&] {
          while (true) broadcast();
        }));
      },
      config);
  job.expect_all("ok");
  // A block begins with its largest exponent, how many exponents escape from its codes (here 0), and fractions.
  network.relay.flip_a_bit({"\x7f\0BB", 4});
  const std::string said = job[0].hear();
  CAPTURE(said);
  CHECK(said.find("CORRUPT [0] the data connection between rank ") == 0);
  CHECK(said.find(" on rank 1: what rank 0 (host ") != std::string::npos);
  CHECK(said.find("are no packed elements (RONDO_CHECKSUM=on ") != std::string::npos);
  CHECK(job[1].hear() == said);
}

TEST_CASE("fault 21: a link of 1 KB/s: TIMEOUT at the deadline, bounded memory") {
  Hosts hosts;
  Job job;
  hosts.start(job, {0, 1}, sum_large, short_calls());
  expect_timeout(job, [&] { hosts.limit_rate(8'000); });
}

TEST_CASE("fault 21: a relay that reads 1 KB/s: TIMEOUT at the deadline, bounded memory") {
  Network network;
  Job job;
  network.start(job, sum_large, short_calls());
  expect_timeout(job, [&] { network.relay.limit_rate(1'000); });
}

// Proves: what a rank has sent reaches the others when it leaves with its last bytes in its sockets.
TEST_CASE("hosts: a rank may leave while its last bytes are on a slow link, for longer than it waits for goodbyes") {
  Hosts hosts(4);
  Config config = fault_config();
  config.destroy_timeout_ms = 200;
  hosts.limit_rate(20'000'000);
  Job job;
  hosts.start(
      job, {0, 1, 2, 3},
      [](Here& here) {
        std::vector<float> data(1 << 18, 1);
        const std::string said = outcome([&] {
          Communicator group = Communicator::join(here.options);
          for (int call = 0; call < 2; ++call) {
            group.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32, Op::kMax,
                             {.algorithm = Algorithm::kStar});
          }
          group.destroy();
        });
        here.say(said);
      },
      config);
  for (int rank = 0; rank < job.world(); ++rank) CHECK(job[rank].hear(20'000) == "ok");
}

}  // namespace rondo::testing
