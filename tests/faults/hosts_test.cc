// Needs root and iproute2 (hosts.h): ranks on two hosts.
#include "tests/faults/hosts.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/faults/ranks.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {
namespace {

constexpr int kRanksPerHost = 2;
constexpr int kWorld = 4;
const std::vector<int> kHostOf{0, 0, 1, 1};

// Small whole numbers, whose sums are exact.
float value_of(int rank, uint64_t i) { return static_cast<float>((i * 7 + static_cast<uint64_t>(rank) * 13) % 101); }

std::string check_sums(Communicator& group, uint64_t count, Algorithm algorithm) {
  std::vector<float> input(count), output(count, -1);
  for (uint64_t i = 0; i < count; ++i) input[i] = value_of(group.rank(), i);
  group.all_reduce(input.data(), output.data(), count, DType::kFloat32, Op::kSum, {.algorithm = algorithm});
  for (uint64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < group.size(); ++rank) sum += value_of(rank, i);
    if (output[i] != sum) {
      return fmt::format("{} of {}: element {} is {}, not {}", algorithm_name(algorithm), count, i, output[i], sum);
    }
  }
  return "right";
}

}  // namespace

TEST_CASE("hosts: an address of one host takes no newcomers in, and the ranks go on") {
  const Hosts hosts;
  const TempFolder folder;
  Job job;
  hosts.start(job, {0, 1}, [join = "unix://" + folder.path("join")](Here& here) {
    here.options.newcomers = join;
    Communicator group = Communicator::join(here.options);
    here.say(outcome([&] { group.grow(1); }));
    here.say(check_sums(group, 1'000, Algorithm::kAuto));
  });
  for (int r = 0; r < 2; ++r) {
    const std::string said = job[r].hear();
    CAPTURE(said);
    CHECK(said.find(fmt::format("INVALID [] grow on rank {}: RONDO_JOIN=\"unix://", r)) == 0);
    CHECK(said.find("is of one host, and the ranks are on several") != std::string::npos);
    CHECK(job[r].hear() == "right");
  }
}

TEST_CASE("hosts: ranks on two hosts join, know who is where, and their sums are right by every algorithm") {
  const Hosts hosts;
  Job job;
  hosts.start(job, kHostOf, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say(fmt::format("{} node {} of {}, local {} of {}", fmt::join(group.topology().host, ","), group.place().node,
                         group.place().nodes, group.place().local_rank, group.place().local_world));
    std::string said = "right";
    for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kRing, Algorithm::kHierarchical, Algorithm::kTree,
                                      Algorithm::kRecursiveDoubling, Algorithm::kDirect}) {
      for (const uint64_t count : {0, 1, 3, 4, 5, 1'000, 1'000'003}) {
        if (said == "right") said = check_sums(group, count, algorithm);
      }
    }
    here.say(said);
    Communicator across = group.split(here.rank() % kRanksPerHost);  // one rank of each host
    here.say(check_sums(across, 10'000, Algorithm::kHierarchical));
    across.destroy();
    group.destroy();
    here.say("done");
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    CAPTURE(rank);
    CHECK(job[rank].hear() ==
          fmt::format("0,0,1,1 node {} of 2, local {} of 2", rank / kRanksPerHost, rank % kRanksPerHost));
    CHECK(job[rank].hear(50'000) == "right");  // more than 20 s under the thread sanitizer
    CHECK(job[rank].hear() == "right");
    CHECK(job[rank].hear() == "done");
  }
}

TEST_CASE("hosts: a rank that dies on one host is named on both within a second") {
  const Hosts hosts;
  Job job;
  hosts.start(job, kHostOf, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    here.say(outcome([&] {
      while (true) check_sums(group, 100'000, Algorithm::kHierarchical);
    }));
  });
  job.expect_all("ready");
  job[3].signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(job[rank].hear().find("PEER_LOST [3] rank 3 (host ") == 0);
    CHECK(ms_since(killed) < 1'500);
  }
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
