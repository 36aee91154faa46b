// Needs root (or CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2: two network namespaces, joined by a pair of virtual
// interfaces, stand for two hosts. They end with the processes that made them. Fails, and says so, where it cannot.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr int kHosts = 2;
constexpr int kRanksPerHost = 2;
constexpr int kWorld = kHosts * kRanksPerHost;
const char* const kAddresses[kHosts] = {"10.77.0.1", "10.77.0.2"};

std::string shell(const std::string& commands) {
  return std::system(("set -e; PATH=$PATH:/usr/sbin:/sbin; " + commands).c_str()) == 0 ? "ready" : "failed";
}

// One process for each host, which holds its namespace.
class Hosts {
 public:
  Hosts() {
    holders_.reserve(kHosts);
    for (int host = 0; host < kHosts; ++host) {
      holders_.emplace_back(JoinOptions(), [](Here& here) {
        here.say(::unshare(CLONE_NEWNET) == 0 ? shell("ip link set lo up") : "failed");
        while (true) here.say(shell(here.await()));
      });
      require_ready(host);
    }
    run(0, fmt::format("ip link add eth0 type veth peer name eth1; ip link set eth1 netns {}", pid(1)));
    run(0, fmt::format("ip addr add {}/24 dev eth0; ip link set eth0 up", kAddresses[0]));
    run(1, fmt::format("ip addr add {}/24 dev eth1; ip link set eth1 up", kAddresses[1]));
  }

  // Of the calling process, from here on.
  static void enter(pid_t holder) {
    const int space = ::open(fmt::format("/proc/{}/ns/net", holder).c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) throw Exception(ErrorCode::kSystem, "cannot enter the host");
    ::close(space);
  }

  pid_t pid(int host) const { return holders_[static_cast<size_t>(host)].pid(); }
  void run(int host, const std::string& commands) {
    holders_[static_cast<size_t>(host)].tell(commands);
    require_ready(host);
  }

 private:
  void require_ready(int host) {
    REQUIRE_MESSAGE(holders_[static_cast<size_t>(host)].hear() == "ready",
                    "cannot make network namespaces: run as root, with iproute2 installed");
  }
  std::vector<RankProcess> holders_;
};

// Ranks 0 and 1 on the first host, 2 and 3 on the second.
void start(Job& job, const Hosts& hosts, const RankProcess::Body& body) {
  for (int rank = 0; rank < kWorld; ++rank) {
    JoinOptions options = job.options(rank, kWorld);
    options.rendezvous = fmt::format("tcp://{}:5577", kAddresses[0]);
    options.config.socket_interface = "";
    options.config.insecure = true;
    const pid_t host = hosts.pid(rank / kRanksPerHost);
    job.ranks.emplace_back(options, [host, body](Here& here) {
      Hosts::enter(host);
      body(here);
    });
  }
}

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

TEST_CASE("hosts: ranks on two hosts join, know who is where, and their sums are right by every algorithm") {
  Hosts hosts;
  Job job;
  start(job, hosts, [](Here& here) {
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
    CHECK(job[rank].hear() == "right");
    CHECK(job[rank].hear() == "right");
    CHECK(job[rank].hear() == "done");
  }
}

TEST_CASE("hosts: a rank that dies on one host is named on both within a second") {
  Hosts hosts;
  Job job;
  start(job, hosts, [](Here& here) {
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

}  // namespace rondo::testing
