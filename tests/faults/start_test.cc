// Groups that cannot be formed: everybody learns why, by the deadline of the start at the latest.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr int64_t kDeadlineMs = 1'500;

Config short_start() {
  Config config = fault_config();
  config.start_timeout_ms = kDeadlineMs;
  return config;
}

// A port that was free a moment ago.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

void join(Here& here) {
  here.say(here.timed([&] {
    Communicator group = Communicator::join(here.options);
    group.barrier();
  }));
  here.await();
}

}  // namespace

TEST_CASE("fault 37: a missing rank is named by all others at the deadline, whichever rank serves the rendezvous") {
  for (const bool tcp : {false, true}) {
    CAPTURE(tcp);
    Job job;
    const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
    for (const int rank : {0, 1, 3}) {
      JoinOptions options = job.options(rank, 4, short_start());
      if (tcp) options.rendezvous = url;
      job.ranks.emplace_back(options, join);
    }
    for (RankProcess& rank : job.ranks) {
      const Timed said = timed_line(rank.hear());
      CAPTURE(said.outcome);
      CHECK(said.begins("BOOTSTRAP [2] of 4 ranks these have not come: 2 "));
      check_within(37, said.elapsed_ms, kDeadlineMs + 1'200);
    }
  }
}

TEST_CASE("rank 0 missing") {
  Job job;
  for (const int rank : {1, 2}) job.ranks.emplace_back(job.options(rank, 3, short_start()), join);
  for (RankProcess& rank : job.ranks) {
    const Timed said = timed_line(rank.hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("BOOTSTRAP [0] of 3 ranks these have not come: 0 "));
    CHECK(said.elapsed_ms < kDeadlineMs + 1'200);
  }
}

TEST_CASE("fault 36: a second process of the same rank is refused; the others start") {
  Job job;
  for (const int rank : {0, 1}) job.ranks.emplace_back(job.options(rank, 3), join);
  job.ranks.emplace_back(job.options(1, 3, short_start()), join);
  // Which of the two was first is open.
  std::string refused = job[1].hear(1'000);
  const int second = refused.empty() ? 2 : 1;
  if (refused.empty()) refused = job[2].hear(5'000);
  CAPTURE(refused);
  check_within(36, timed_line(refused).elapsed_ms, 1'500);
  CHECK(refused.find("BOOTSTRAP [] rank 1 is already taken by host ") != std::string::npos);
  job.ranks.emplace_back(job.options(2, 3), join);
  for (const int i : {0, 3 - second, 3}) CHECK(timed_line(job[i].hear()).outcome == "ok");
}

TEST_CASE("fault 38: another world size is refused with both sizes") {
  Job job;
  for (const int rank : {0, 1}) job.ranks.emplace_back(job.options(rank, 3, short_start()), join);
  job.ranks.emplace_back(job.options(2, 4, short_start()), join);
  const Timed said = timed_line(job[2].hear());
  CAPTURE(said.outcome);
  CHECK(said.begins("BOOTSTRAP [] rank 2 says that the world has 4 ranks, but rank 0 ("));
  CHECK(said.has(") says 3"));
  check_within(38, said.elapsed_ms, 1'000);
  // They wait for the right rank 2, and say at their deadline whom they have seen.
  for (const int rank : {0, 1}) {
    const Timed waited = timed_line(job[rank].hear());
    CAPTURE(waited.outcome);
    CHECK(waited.begins("BOOTSTRAP [2] "));
    CHECK(waited.has(fmt::format("pid {}, was refused: it says that the world has 4 ranks, not 3", job[2].pid())));
  }
}

TEST_CASE("fault 38: a rank beyond the world is invalid at once") {
  Job job;
  for (const int rank : {3, 7}) job.ranks.emplace_back(job.options(rank, 3, short_start()), join);
  for (RankProcess& rank : job.ranks) {
    const Timed said = timed_line(rank.hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("INVALID ["));
    CHECK(said.elapsed_ms < 1'000);
  }
}

TEST_CASE("settings that must be equal and are not: the first that differs is named") {
  const auto expect_named = [](void (*change)(Config&), const char* text) {
    Job job;
    Config other = short_start();
    change(other);
    job.ranks.emplace_back(job.options(0, 2, short_start()), join);
    job.ranks.emplace_back(job.options(1, 2, other), join);
    for (RankProcess& rank : job.ranks) {
      const Timed said = timed_line(rank.hear());
      CAPTURE(said.outcome);
      CHECK(said.begins("BOOTSTRAP ["));
      CHECK(said.has(text));
    }
  };
  expect_named([](Config& other) { other.slice_bytes = 128 * 1024; },
               "RONDO_SLICE_BYTES=131072, but RONDO_SLICE_BYTES=262144 on rank 0");
  expect_named([](Config& other) { other.staging_bytes = 2u << 20; },
               "RONDO_STAGING_BYTES=2097152, but RONDO_STAGING_BYTES=1048576 on rank 0");
  expect_named([](Config& other) { other.bucket_bytes = 0; },
               "RONDO_BUCKET_BYTES=0, but RONDO_BUCKET_BYTES=1048576 on rank 0");
  expect_named([](Config& other) { other.single_copy = "off"; },
               "RONDO_SINGLE_COPY=off, but RONDO_SINGLE_COPY=auto on rank 0");
}

TEST_CASE("a second join() of one rank of a job: both sides are told that it is a second group, for all ranks") {
  Config config = short_start();
  config.start_timeout_ms = 5'000;
  config.timeout_ms = 1'500;
  config.stall_ms = 200;
  const TempFolder folder;
  Job job;
  job.start(
      2,
      [second = "file://" + folder.path("second")](Here& here) {
        Communicator group = Communicator::join(here.options);
        here.options.rendezvous = second;
        if (here.rank() == 0) here.say(outcome([&] { Communicator::join(here.options); }));
        here.say(outcome([&] { group.barrier(); }));
        here.await();
      },
      config);
  const std::string joined = job[0].hear();
  CAPTURE(joined);
  CHECK(joined.find("BOOTSTRAP [1] ") == 0);
  CHECK(joined.find("this process has joined before: a second init() or join() is a second group") !=
        std::string::npos);
  const std::string waited = job[1].hear();
  CAPTURE(waited);
  CHECK(waited.find("TIMEOUT [0] ") == 0);
  CHECK(waited.find("it waits in init() or join() again, which makes a second group, for all ranks") !=
        std::string::npos);
}

TEST_CASE("the same port serves one group after the other, fifty times") {
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  Job job;
  for (int rank = 0; rank < 2; ++rank) {
    JoinOptions options = job.options(rank, 2);
    options.rendezvous = url;
    job.ranks.emplace_back(options, [](Here& here) {
      for (int i = 0; i < 50; ++i) {
        Communicator group = Communicator::join(here.options);
        group.barrier();
      }
      here.say("done");
    });
  }
  for (RankProcess& rank : job.ranks) CHECK(rank.hear(30'000) == "done");
}

}  // namespace rondo::testing
