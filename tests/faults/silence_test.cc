// Ranks that are stopped, late or slow: told apart, and named on every rank; and an abort out of a signal handler.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ring/base/file_text.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

// The defaults, ten times as fast.
Config fast_heartbeats() {
  Config config = fault_config();
  config.heartbeat_ms = 100;
  config.suspicion_ms = 1'000;
  return config;
}

std::string sum(Communicator& group, uint64_t count = 8) {
  return outcome([&] { sum_ones(group, count); });
}

// Lines of the log of this process, on standard error, into a file that the test reads.
void log_into(const std::string& file) {
  if (::freopen(file.c_str(), "w", stderr) == nullptr) throw Exception(ErrorCode::kSystem, "freopen");
}

// Stops rank 1 of 3 for ever, while the others are in a call or idle: what they end with, and after how long.
void stop_for_ever(const Config& config, const char* transport, bool idle) {
  Job job;
  Config with = config;
  with.transport = transport;
  job.start(
      3,
      [idle](Here& here) {
        Communicator group = Communicator::join(here.options);
        here.say(sum(group));
        here.await();
        if (here.rank() == 1) ::pause();
        if (idle) eventually([&] { return group.error().has_value(); }, 20'000);
        here.say(sum(group));
        here.say(here.timed([&] { group.destroy(); }));
      },
      with);
  job.expect_all("ok");
  job[1].signal(SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  job[0].tell("go");
  job[2].tell("go");
  std::string first;
  for (const int rank : {0, 2}) {
    CAPTURE(rank);
    const std::string said = job[rank].hear(20'000);
    const int64_t took = ms_since(stopped);
    CAPTURE(said);
    CHECK(said.find("UNRESPONSIVE [1] rank 1 (host ") == 0);
    CHECK(said.find("has not answered for ") != std::string::npos);
    check_within(12, took, config.suspicion_ms + 1'000);
    if (rank == 0) first = said;
    CHECK(said == first);
    const Timed destroyed = timed_line(job[rank].hear());
    CHECK(destroyed.outcome == "ok");
    CHECK(destroyed.elapsed_ms < 1'000);
  }
}

}  // namespace

TEST_CASE(
    "fault 12: SIGSTOP for ever is UNRESPONSIVE by the suspicion and 1 s, in a call and idle, over TCP and memory") {
  for (const char* transport : {"tcp", "auto"}) {
    for (const bool idle : {false, true}) {
      CAPTURE(transport);
      CAPTURE(idle);
      stop_for_ever(fast_heartbeats(), transport, idle);
    }
  }
}

TEST_CASE("fault 11: SIGSTOP for 3 s, then CONT: success, and a warning that names the rank") {
  TempFolder folder;
  Config config = fault_config();
  config.debug = "warn";
  Job job;
  job.start(
      3,
      [&](Here& here) {
        log_into(folder.path(fmt::format("log{}", here.rank())));
        Communicator group = Communicator::join(here.options);
        here.say(sum(group));
        here.await();
        here.say(sum(group, 1 << 20));
        here.await();
        here.say(outcome([&] { group.destroy(); }));
      },
      config);
  job.expect_all("ok");
  job[1].signal(SIGSTOP);
  job.tell_all("go");
  CHECK(job[0].hear(3'000) == "");  // it waits
  job[1].signal(SIGCONT);
  job.expect_all("ok");
  // Until the next beat says that it is back.
  CHECK(eventually([&] { return file_text(folder.path("log0")).find("answers again") != std::string::npos; }, 5'000));
  job.tell_all("end");
  job.expect_all("ok");
  int explained = 0;
  for (const int rank : {0, 2}) {
    const std::string log = file_text(folder.path(fmt::format("log{}", rank)));
    CAPTURE(log);
    CHECK(log.find("rank 1 (host ") != std::string::npos);
    CHECK(log.find("has not answered for 2") != std::string::npos);
    explained += log.find("which made no progress for ") != std::string::npos ? 1 : 0;
    CHECK(log.find("died") == std::string::npos);
  }
  CHECK(explained == 1);
}

// A whole job is suspended, as schedulers do it: no rank is at fault, and the deadlines of its calls stand still.
TEST_CASE("fault 11: SIGSTOP of all ranks for longer than their calls may last, then CONT one by one: success") {
  constexpr int kStopMs = 3'000, kApartMs = 200;
  Config config = fault_config();
  config.timeout_ms = kStopMs - 1'000;
  const std::vector<RankProcess::Body> waits{
      [](Here& here) {  // in a blocking call
        Communicator group = Communicator::join(here.options);
        here.say("ready");
        if (here.rank() == 1) here.await();
        here.say(sum(group));
      },
      [](Here& here) {  // for a message
        Communicator group = Communicator::join(here.options);
        here.say("ready");
        if (here.rank() == 1) here.await();
        uint8_t byte = 0;
        here.say(outcome([&] {
          if (here.rank() == 0) group.recv(&byte, 1, DType::kUint8, 1, 0);
          if (here.rank() == 1) group.send(&byte, 1, DType::kUint8, 0, 0);
        }));
      },
      [](Here& here) {  // no thread of the caller's does
        Communicator group = Communicator::join(here.options);
        float one = 1, other = 1;
        Work first, second;
        const auto start = [&] {
          first = group.all_reduce_async(&one, &one, 1, DType::kFloat32);
          second = group.all_reduce_async(&other, &other, 1, DType::kFloat32);
        };
        if (here.rank() == 0) start();
        here.say("ready");
        here.await();
        if (here.rank() == 1) start();
        here.say(outcome([&] { first.wait(), second.wait(); }));
      },
  };
  std::vector<Job> jobs(waits.size());
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].start(2, waits[i], config);
  for (Job& job : jobs) job.expect_all("ready");
  for (Job& job : jobs) {
    CHECK(job[0].hear(100) == "");  // it waits
    for (const int rank : {0, 1}) job[rank].signal(SIGSTOP);
  }
  CHECK(jobs[0][0].hear(kStopMs) == "");
  for (Job& job : jobs) job[0].signal(SIGCONT);
  CHECK(jobs[0][0].hear(kApartMs) == "");
  for (Job& job : jobs) {
    job[1].signal(SIGCONT);
    job.tell_all("go");
  }
  for (Job& job : jobs) job.expect_all("ok");
}

namespace {
Communicator* of_the_handler = nullptr;
}

TEST_CASE("fault 69: an abort out of a signal handler ends the calls of all ranks") {
  for (const char* transport : {"tcp", "auto"}) {
    CAPTURE(transport);
    Config config = fault_config(transport);
    Job job;
    job.start(
        3,
        [](Here& here) {
          Communicator group = Communicator::join(here.options);
          of_the_handler = &group;
          struct sigaction action {};
          action.sa_handler = [](int) { of_the_handler->abort_from_signal(); };
          ::sigaction(SIGUSR1, &action, nullptr);
          here.say("ready");
          if (here.rank() == 2) eventually([&] { return group.error().has_value(); });
          here.say(sum(group));
          here.say(here.timed([&] { group.destroy(); }));
        },
        config);
    job.expect_all("ready");
    job[0].signal(SIGUSR1);
    const auto asked = std::chrono::steady_clock::now();
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(job[rank].hear() == "ABORTED [0] rank 0 aborted the group in a signal handler");
      check_within(69, ms_since(asked), 1'500);
      CHECK(timed_line(job[rank].hear()).elapsed_ms < 1'000);
    }
  }
}

}  // namespace rondo::testing
