// Needs root and iproute2 (hosts.h): starts of ranks that do not reach each other, or find no name. Every rank says
// why, by the deadline of the start, and names the ends of the way that is closed.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/faults/hosts.h"
#include "tests/faults/ranks.h"
#include "tests/support/secrets.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {
namespace {

constexpr int64_t kDeadlineMs = 3'000;
constexpr int kWorld = 3;

Config short_start() {
  Config config = fault_config();
  config.start_timeout_ms = kDeadlineMs;
  return config;
}

void join(Here& here) {
  here.say(here.timed([&] {
    Communicator group = Communicator::join(here.options);
    group.barrier();
  }));
  here.await();
}

// This process sees `text` in the file of that path.
void show_file(const std::string& path, const std::string& text) {
  const TempFolder folder;
  std::ofstream(folder.path("shown")) << text;
  const bool shown = ::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", nullptr, MS_PRIVATE | MS_REC, nullptr) == 0 &&
                     ::mount(folder.path("shown").c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0;
  if (!shown) throw std::runtime_error("cannot show another " + path + ": run as root");
}

// Rank 2 cannot connect to rank 1.
void expect_parted(Job& job, int64_t limit_ms, const std::string& words) {
  for (int rank = 0; rank < kWorld; ++rank) {
    CAPTURE(rank);
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("NETWORK [1,2] "));
    for (const int end : {1, 2}) CHECK(said.has(Hosts::address(end)));
    CHECK(said.has(words));
    CHECK(said.has("does a firewall stand between the two"));
    CHECK(said.elapsed_ms < limit_ms);
  }
}

}  // namespace

TEST_CASE("hosts: what one rank sends to another vanishes: NETWORK at the start's deadline on every rank, both named") {
  Hosts hosts(kWorld);
  hosts.swallow(2, 1);
  Job job;
  hosts.start(job, {0, 1, 2}, join, short_start());
  expect_parted(job, kDeadlineMs + 1'500, "the start's deadline has passed");
}

TEST_CASE("hosts: a rank without a local port says so on every rank") {
  Hosts hosts;
  Job job;
  hosts.start(job, {0, 1}, [](Here& here) {
    if (here.rank() == 1) std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "40000 40001\n";
    join(here);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("SYSTEM [1] "));
    CHECK(said.has("net.ipv4.ip_local_port_range"));
  }
}

TEST_CASE("hosts: name servers that do not answer do not overrun the start's deadline") {
  Hosts hosts;
  Job job;
  hosts.start(
      job, {0, 1},
      [](Here& here) {
        if (here.rank() == 1) {
          show_file("/etc/resolv.conf", "nameserver 10.77.0.99\nnameserver 10.77.0.98\n");
          here.options.rendezvous = fmt::format("tcp://head.example.org:{}", Hosts::kRendezvousPort);
        }
        join(here);
      },
      short_start());
  const Timed said = timed_line(job[1].hear());
  CAPTURE(said.outcome);
  CHECK(said.begins("BOOTSTRAP [0] rank 0 is missing: "));
  CHECK(said.has("cannot resolve the host \"head.example.org\""));
  CHECK(said.elapsed_ms < kDeadlineMs + 500);
}

TEST_CASE("hosts: a name that is loopback's on the host of rank 0 alone serves the others") {
  Hosts hosts;
  Job job;
  hosts.start(job, {0, 1}, [](Here& here) {
    show_file("/etc/hosts", here.rank() == 0 ? "127.0.0.1 localhost head\n" : Hosts::address(0) + " head\n");
    here.options.rendezvous = fmt::format("tcp://head:{}", Hosts::kRendezvousPort);
    join(here);
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(timed_line(job[rank].hear()).outcome == "ok");
}

TEST_CASE("hosts: a name that is loopback's on the host of another rank is an error there that says so") {
  Hosts hosts;
  Job job;
  hosts.start(
      job, {0, 1},
      [](Here& here) {
        if (here.rank() == 1) {
          show_file("/etc/hosts", "127.0.0.1 localhost head\n");
          here.options.rendezvous = fmt::format("tcp://head:{}", Hosts::kRendezvousPort);
        }
        join(here);
      },
      short_start());
  const Timed said = timed_line(job[1].hear());
  CAPTURE(said.outcome);
  CHECK(said.begins("BOOTSTRAP [0] rank 0 is missing: "));
  CHECK(said.has("That name leads to this host here"));
}

TEST_CASE("hosts: those that have waited for a rank with another secret learn where one came from") {
  Hosts hosts(kWorld);
  const TempFolder folder;
  Config config = short_start();
  config.secret_file = make_secret(folder, "right", "the right secret of the hosts' ranks");
  Job job;
  hosts.start(
      job, {0, 1, 2},
      [wrong = make_secret(folder, "wrong", "another secret of the hosts' ranks")](Here& here) {
        if (here.rank() == 1) here.options.config.secret_file = wrong;
        join(here);
      },
      config);
  CHECK(timed_line(job[1].hear()).begins("AUTH_FAILED "));
  for (const int rank : {0, 2}) {
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("BOOTSTRAP [1] "));
    CHECK(said.has("a process at " + Hosts::address(1) + " was refused, since it has another secret than this job"));
  }
}

TEST_CASE("hosts: an address of one host takes no newcomers in, and the ranks go on") {
  const Hosts hosts;
  const TempFolder folder;
  Job job;
  hosts.start(job, {0, 1}, [join = "unix://" + folder.path("join")](Here& here) {
    here.options.newcomers = join;
    Communicator group = Communicator::join(here.options);
    here.say(outcome([&] { group.grow(1); }));
    here.say(sums_until(group, 0));
  });
  for (int r = 0; r < 2; ++r) {
    const std::string said = job[r].hear();
    CAPTURE(said);
    CHECK(said.find(fmt::format("INVALID [] grow on rank {}: RONDO_JOIN=\"unix://", r)) == 0);
    CHECK(said.find("is of one host, and the ranks are on several") != std::string::npos);
    CHECK(job[r].hear() == "ok");
  }
}

}  // namespace rondo::testing
