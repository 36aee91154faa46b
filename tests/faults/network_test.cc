// Needs root and iproute2 (hosts.h): what a network does to ranks on two hosts, and by when they know.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/faults/hosts.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

// A rank on each host.
const std::vector<int> kHostOf{0, 1};

Config quick_suspicion() {
  Config config = fault_config();
  config.heartbeat_ms = 300;
  config.suspicion_ms = 3'000;
  return config;
}

// Since Linux 6.15 a socket may be told to try often (TCP_RTO_MAX_MS): else an outage of 7 s lasts 12.6 s for it.
bool tries_often() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), most_ms = 1'000;
  const bool known = ::setsockopt(socket, IPPROTO_TCP, 44, &most_ms, sizeof most_ms) == 0;
  ::close(socket);
  return known;
}

struct End {
  int row = 0;
  const char* code = "";
  int64_t limit_ms = 0;
};

// Both ranks sum for ever; after `cut` they end, each with this code and the other's name, within the limit.
void expect_cut(const End& end, Hosts& hosts, const Config& config, const std::function<void()>& cut) {
  Job job;
  hosts.start(
      job, kHostOf,
      [](Here& here) {
        Communicator group = Communicator::join(here.options);
        here.say(sums_until(group, 0));
        here.say(sums_until(group, 60'000));
        here.say(here.timed([&] { group.destroy(); }));
      },
      config);
  job.expect_all("ok");
  cut();
  const auto since = Clock::now();
  for (int rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    const std::string said = job[rank].hear(30'000);
    const int64_t took = ms_since(since);
    CAPTURE(said);
    CHECK(said.find(fmt::format("{} [{}] ", end.code, 1 - rank)) == 0);
    check_within(end.row, took, end.limit_ms);
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Timed destroyed = timed_line(job[rank].hear());
    CHECK(destroyed.outcome == "ok");
    CHECK(destroyed.elapsed_ms < 5'000);
  }
}

// The number is that of a file of the program's from now on.
void reuse(int number) {
  std::FILE* const file = std::tmpfile();
  if (file == nullptr || ::pwrite(::fileno(file), "\1\1", 2, 0) != 2 || ::dup2(::fileno(file), number) < 0)
    std::abort();
  std::fclose(file);
}

}  // namespace

TEST_CASE("fault 17: a cable that is pulled for seconds disturbs no call, with checksums on the wire") {
  const int away_ms = tries_often() ? 8'000 : 2'000;
  Hosts hosts;
  Job job;
  hosts.start(job, kHostOf, [away_ms](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say(sums_until(group, 0));
    here.say(sums_until(group, away_ms + 3'000));
  });
  job.expect_all("ok");
  hosts.pull_cable(1);
  eventually([] { return false; }, away_ms);
  hosts.plug_cable(1);
  job.expect_all("ok");
}

TEST_CASE("fault 15: packets that vanish, both ways or one, end the calls of both sides by the suspicion: 3 s") {
  for (const bool one_way : {false, true}) {
    CAPTURE(one_way);
    Hosts hosts;
    expect_cut({15, "UNRESPONSIVE", 4'000}, hosts, quick_suspicion(),
               [&] { one_way ? hosts.swallow(1, 0) : hosts.pull_cable(1); });
  }
}

TEST_CASE("fault 16: whose end the launcher of its host has seen does not count; who is only out of reach does") {
  // The descriptor is the launcher's until after join(), or a file of the program's before it.
  for (const bool reused_before : {false, true}) {
    CAPTURE(reused_before);
    Hosts hosts;
    Job job;
    const int ended = ::memfd_create("ended", 0);
    REQUIRE(::ftruncate(ended, 2) == 0);
    hosts.start(job, kHostOf, [ended, reused_before](Here& here) {
      const std::string rendezvous = std::exchange(here.options.rendezvous, "");
      const std::pair<const char*, std::string> variables[] = {
          {"RANK", std::to_string(std::exchange(here.options.rank, -1))},
          {"WORLD_SIZE", std::to_string(std::exchange(here.options.world, -1))},
          {"RONDO_RENDEZVOUS", rendezvous},
          {"RONDO_ENDED", fmt::format("{}:{}", ended, rendezvous)}};
      for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
      if (reused_before) reuse(ended);
      Communicator group = Communicator::join(here.options);
      if (!reused_before) reuse(ended);
      here.say(sums_until(group, 0));
      outcome([&] {
        while (true) group.barrier();
      });
      while (true) {
        const std::string said = outcome([&] { group = group.shrink(std::chrono::seconds(20)); });
        here.say(said == "ok" ? fmt::format("{} of {}", sums_until(group, 0), group.size()) : said);
        here.await();
      }
    });
    job.expect_all("ok");
    job[0].signal(SIGKILL);
    CHECK(job[1].hear(25'000).find("NO_QUORUM [0]") == 0);
    REQUIRE(::pwrite(ended, "\1", 1, 0) == 1);
    job[1].tell("again");
    CHECK(job[1].hear(25'000).find(reused_before ? "NO_QUORUM [0]" : "ok of 1") == 0);
    ::close(ended);
  }
}

TEST_CASE("fault 23: RST on every connection ends the calls of both sides within a second") {
  Hosts hosts;
  expect_cut({23, "PEER_LOST", 1'500}, hosts, fault_config(), [&] { hosts.reset_connections(1); });
}

}  // namespace rondo::testing
