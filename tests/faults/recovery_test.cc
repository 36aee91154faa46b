// After a death the others shrink and go on with the right sums, soon; who was left out learns it; and what was made of
// the communicator that shrinks goes on, too, or ends. More deaths, at every moment: tests/simulation, tests/life.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kCount = 100'000;

// The sum of (world rank + 1) over the members.
std::string summed(Communicator& group, int own, uint64_t count = kCount) {
  std::vector<float> in(count, static_cast<float>(own + 1)), out(count);
  return outcome([&] {
    group.all_reduce(in.data(), out.data(), count, DType::kFloat32);
    const bool same = std::all_of(out.begin(), out.end(), [&](float value) { return value == out[0]; });
    if (!same) throw Exception(ErrorCode::kInternal, "a wrong sum");
    throw Exception(ErrorCode::kOk, fmt::format("{} of {}", out[0], group.size()));
  });
}

// Sums until the loss, shrinks, and sums again.
void lose_and_go_on(Here& here, Communicator& group) {
  std::string said;
  do {
    said = summed(group, here.rank());
  } while (said.find("OK") == 0);
  here.say(said.substr(0, said.find(']')));
  group = group.shrink(std::chrono::seconds(20));
  here.say(fmt::format("{} {} rank {} epoch {}", summed(group, here.rank()), "as", group.rank(), group.epoch()));
}

}  // namespace

// RONDO_REPEAT=50 has more of it, by hand for docs/faults.md.
TEST_CASE("fault 3: killed in all_reduce, each rank in turn: the others shrink, and sum rightly, soon") {
  constexpr int kWorld = 4;
  const char* repeat = std::getenv("RONDO_REPEAT");
  for (const char* transport : {"auto", "tcp"}) {
    std::vector<int64_t> times_ms;
    for (int i = 0; i < (repeat != nullptr ? std::atoi(repeat) : kWorld); ++i) {
      const int victim = i % kWorld;
      CAPTURE(transport);
      CAPTURE(victim);
      Job job;
      job.start(
          kWorld,
          [](Here& here) {
            Communicator group = Communicator::join(here.options);
            here.say("ready");
            lose_and_go_on(here, group);
            here.await();
          },
          fault_config(transport));
      job.expect_all("ready");
      job[victim].signal(SIGKILL);
      const auto killed = std::chrono::steady_clock::now();
      int place = 0;
      for (int r = 0; r < kWorld; ++r) {
        if (r == victim) continue;
        CHECK(job[r].hear() == fmt::format("PEER_LOST [{}", victim));
        CHECK(job[r].hear() == fmt::format("OK [] {} of 3 as rank {} epoch 1", 9 - victim, place++));
      }
      times_ms.push_back(ms_since(killed));
      check_within(3, times_ms.back(), 1'500);
      for (int r = 0; r < kWorld; ++r) {
        if (r != victim) job[r].tell("end");
      }
    }
    std::sort(times_ms.begin(), times_ms.end());
    MESSAGE(std::string(transport), ": median ", times_ms[times_ms.size() / 2], " ms of ", times_ms.size());
  }
}

TEST_CASE("fault 13: stopped, left out, continued: EPOCH_STALE, and the others are not disturbed") {
  for (const char* transport : {"auto", "tcp"}) {
    CAPTURE(transport);
    Config config = fault_config(transport);
    config.suspicion_ms = 1'500;
    config.heartbeat_ms = 300;
    Job job;
    job.start(
        3,
        [](Here& here) {
          Communicator group = Communicator::join(here.options);
          here.say("ready");
          std::string said = outcome([&] {
            while (true) group.barrier();
          });
          here.say(said.substr(0, said.find(']')));
          said = outcome([&] { group = group.shrink(std::chrono::seconds(20)); });
          if (here.rank() == 0) return here.say(said.substr(0, said.find(']')));
          here.say(summed(group, here.rank()));
          here.await();
          here.say(summed(group, here.rank()));
          here.await();
        },
        config);
    job.expect_all("ready");
    job[0].signal(SIGSTOP);
    for (const int r : {1, 2}) {
      CHECK(job[r].hear() == "UNRESPONSIVE [0");
      CHECK(job[r].hear() == "OK [] 5 of 2");
    }
    job[0].signal(SIGCONT);
    CHECK(job[0].hear() == "UNRESPONSIVE [0");
    CHECK(job[0].hear() == "EPOCH_STALE [0");
    for (const int r : {1, 2}) job[r].tell("go on");
    for (const int r : {1, 2}) CHECK(job[r].hear() == "OK [] 5 of 2");
    for (const int r : {1, 2}) job[r].tell("end");
  }
}

TEST_CASE("memory of allocate() and sub-communicators go on") {
  Job job;
  job.start(4, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    Communicator odd = group.split(here.rank() % 2);
    auto* data = static_cast<float*>(group.allocate(kCount * sizeof(float)));
    here.say("ready");
    outcome([&] {
      while (true) group.barrier();
    });
    if (here.rank() % 2 == 0) here.say(summed(odd, here.rank()));
    group = group.shrink(std::chrono::seconds(20));
    if (here.rank() == 1) {
      std::string said;
      while (said.find("PEER_LOST") != 0) said = outcome([&] { odd.barrier(); });
      odd = odd.shrink(std::chrono::seconds(20));
      here.say(summed(odd, here.rank()));
    }
    std::fill_n(data, kCount, static_cast<float>(here.rank() + 1));
    CallOptions options;
    options.algorithm = Algorithm::kRegistered;
    const std::string said = outcome([&] { group.all_reduce(data, data, kCount, DType::kFloat32, Op::kSum, options); });
    here.say(fmt::format("{} {}", said, data[kCount - 1]));
    group.deallocate(data);
    here.await();
  });
  job.expect_all("ready");
  job[3].signal(SIGKILL);
  for (const int r : {0, 2}) CHECK(job[r].hear() == "OK [] 4 of 2");
  CHECK(job[1].hear() == "OK [] 2 of 1");
  for (const int r : {0, 1, 2}) CHECK(job[r].hear() == "ok 6");
  for (const int r : {0, 1, 2}) job[r].tell("end");
}

// Rank 3 dies. Rank 2 goes to shrink() of the group, and the others wait in one that was made of it without rank 3.
TEST_CASE("who waits in a sub-communicator for a rank that has gone to shrink() is sent there, too") {
  for (const bool message : {false, true}) {
    for (const int depth : {1, 2}) {
      CAPTURE(message);
      CAPTURE(depth);
      Job job;
      job.start(4, [&](Here& here) {
        Communicator group = Communicator::join(here.options);
        Communicator part = group.split(here.rank() == 3 ? 1 : 0);
        if (depth == 2) part = part.dup();
        here.say("ready");
        if (here.rank() >= 2) {
          outcome([&] { group.barrier(); });
        } else {
          float value = 0;
          here.say(outcome([&] {
            if (message) {
              static_cast<void>(part.recv(&value, 1, DType::kFloat32, 2));
            } else {
              part.barrier();
            }
          }));
        }
        group = group.shrink(std::chrono::seconds(40));
        here.say(summed(group, here.rank()));
        here.say(outcome([&] { group.barrier(); }));
        here.await();
      });
      job.expect_all("ready");
      job[3].signal(SIGKILL);
      for (const int r : {0, 1}) {
        const std::string said = job[r].hear();
        CAPTURE(said);
        CHECK(said.find("ABORTED [2] rank 2") == 0);
        CHECK(said.find("has gone to shrink() of the communicator that this one was made of") != std::string::npos);
      }
      for (const int r : {0, 1, 2}) CHECK(job[r].hear() == "OK [] 6 of 3");
      for (const int r : {0, 1, 2}) CHECK(job[r].hear() == "ok");
      for (const int r : {0, 1, 2}) job[r].tell("end");
    }
  }
}

}  // namespace rondo::testing
