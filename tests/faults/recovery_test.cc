// After a death the others shrink and go on with the right sums; who was left out learns it; without a quorum nobody
// goes on.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

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

void kill_one(const Config& config, int world, int victim, const std::string& sum) {
  CAPTURE(victim);
  Job job;
  job.start(
      world,
      [](Here& here) {
        Communicator group = Communicator::join(here.options);
        here.say("ready");
        lose_and_go_on(here, group);
        here.await();
      },
      config);
  job.expect_all("ready");
  ::kill(job[victim].pid(), SIGKILL);
  const auto killed = Clock::now();
  int place = 0;
  for (int r = 0; r < world; ++r) {
    if (r == victim) continue;
    CAPTURE(r);
    CHECK(job[r].hear() == fmt::format("PEER_LOST [{}", victim));
    CHECK(job[r].hear() == fmt::format("OK [] {} of {} as rank {} epoch 1", sum, world - 1, place++));
  }
  check_within(3, ms_since(killed), 1'500);
  for (int r = 0; r < world; ++r) {
    if (r != victim) job[r].tell("end");
  }
}

// In place, over and over: plain memory and registered, awaited and not. Rank 0 dies in the middle of the last and
// largest call, after so long; it has left its input, and is done again by those who live.
void lose_in_place(Here& here, std::chrono::microseconds dies_after) {
  Communicator group = Communicator::join(here.options);
  const auto own = static_cast<float>(here.rank() + 1);
  constexpr int kLast = 15;
  constexpr uint64_t kCounts[] = {2, 1'000, kCount, 1'000'000}, kMost = 2'000'000;
  std::vector<float> plain(kMost);
  auto* const registered = static_cast<float*>(group.allocate(plain.size() * sizeof(float)));
  Call call;
  call.options.recoverable = true;
  const auto run = [&] { call.count % 5 == 0 ? group.start(call).wait() : group.run(call); };
  const auto all_are = [&](float value) {
    const auto* const data = static_cast<const float*>(call.output);
    return std::all_of(data, data + call.count, [&](float each) { return each == value; });
  };
  std::string said = "ok";
  for (int i = 0; i <= kLast && said == "ok"; ++i) {
    call.count = i == kLast ? kMost : kCounts[i % 4];
    call.input = call.output = (i + dies_after.count()) % 3 == 0 ? registered : plain.data();
    std::fill_n(static_cast<float*>(call.output), call.count, own);
    if (i == kLast && here.rank() == 0) {
      const Work work = group.start(call);
      std::this_thread::sleep_for(dies_after);
      ::raise(SIGKILL);
    }
    said = outcome(run);
    if (said == "ok" && !all_are(6)) return here.say("a wrong sum");
  }
  here.say(said.substr(0, said.find(']')));
  group = group.shrink(std::chrono::seconds(20));
  if (said != "ok") {  // it had given all that was asked of it
    if (!all_are(own)) return here.say("the input is not as it was");
  } else {
    std::fill_n(static_cast<float*>(call.output), call.count, own);
  }
  run();
  here.say(all_are(5) ? "done again" : "a wrong sum");
}

Config with_transport(const char* transport) {
  Config config = fault_config();
  config.transport = transport;
  return config;
}

}  // namespace

TEST_CASE("fault 3: killed in all_reduce, each rank in turn: the others shrink, and sum rightly") {
  for (const char* transport : {"auto", "tcp"}) {
    CAPTURE(transport);
    for (int victim = 0; victim < 4; ++victim)
      kill_one(with_transport(transport), 4, victim, std::to_string(10 - victim - 1));
  }
}

TEST_CASE("killed in a recoverable all_reduce in place: the others do it again from what they gave") {
  for (const char* transport : {"auto", "tcp"}) {
    for (int ms = 0; ms < 6; ++ms) {
      CAPTURE(transport);
      CAPTURE(ms);
      Job job;
      job.start(
          3, [ms](Here& here) { lose_in_place(here, std::chrono::milliseconds(ms)); }, with_transport(transport));
      for (int r = 1; r < 3; ++r) {
        const std::string said = job[r].hear();
        // The other may have its sum, and shrink already.
        CHECK((said == "ok" || said == "PEER_LOST [0" || said.find("ABORTED [") == 0));
        CHECK(job[r].hear() == "done again");
      }
    }
  }
}

TEST_CASE("one of two, and one after the other down to the last") {
  kill_one(fault_config(), 2, 0, "2");
  kill_one(fault_config(), 2, 1, "1");
  Job job;
  job.start(4, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    for (int lives = 4; lives > 1; --lives) lose_and_go_on(here, group);
    here.await();
  });
  job.expect_all("ready");
  for (int victim = 0; victim < 3; ++victim) {
    ::kill(job[victim].pid(), SIGKILL);
    for (int r = victim + 1; r < 4; ++r) {
      CAPTURE(victim);
      CAPTURE(r);
      CHECK(job[r].hear() == "PEER_LOST [0");
      CHECK(job[r].hear().find(fmt::format("of {} as rank {} epoch {}", 3 - victim, r - victim - 1, victim + 1)) !=
            std::string::npos);
    }
  }
  job[3].tell("end");
}

TEST_CASE("fault 7: killed in shrink(): the others begin it again without that one") {
  for (int delay = 0; delay < 6; ++delay) {
    CAPTURE(delay);
    Job job;
    job.start(4, [delay](Here& here) {
      Communicator group = Communicator::join(here.options);
      here.say("ready");
      const std::string said = outcome([&] {
        while (true) group.barrier();
      });
      if (here.rank() == 0) {
        std::thread([delay] {
          std::this_thread::sleep_for(std::chrono::microseconds(200 * delay));
          ::raise(SIGKILL);
        }).detach();
      }
      group = group.shrink(std::chrono::seconds(20));
      // Rank 0 may have died in the call or after it.
      std::string sum = summed(group, here.rank());
      if (sum.find("OK") != 0 || group.size() == 3) {
        if (sum.find("OK") == 0)
          sum = outcome([&] {
            while (true) group.barrier();
          });
        group = group.shrink(std::chrono::seconds(20));
        sum = summed(group, here.rank());
      }
      here.say(sum);
      here.await();
    });
    job.expect_all("ready");
    ::kill(job[3].pid(), SIGKILL);
    for (const int r : {1, 2}) CHECK(job[r].hear() == "OK [] 5 of 2");
    for (const int r : {1, 2}) job[r].tell("end");
  }
}

TEST_CASE("fault 13: stopped, left out, continued: EPOCH_STALE, and the others are not disturbed") {
  for (const char* transport : {"auto", "tcp"}) {
    CAPTURE(transport);
    Config config = with_transport(transport);
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
    ::kill(job[0].pid(), SIGSTOP);
    for (const int r : {1, 2}) {
      CHECK(job[r].hear() == "UNRESPONSIVE [0");
      CHECK(job[r].hear() == "OK [] 5 of 2");
    }
    ::kill(job[0].pid(), SIGCONT);
    CHECK(job[0].hear() == "UNRESPONSIVE [0");
    CHECK(job[0].hear() == "EPOCH_STALE [0");
    for (const int r : {1, 2}) job[r].tell("go on");
    for (const int r : {1, 2}) CHECK(job[r].hear() == "OK [] 5 of 2");
    for (const int r : {1, 2}) job[r].tell("end");
  }
}

TEST_CASE("half without the lowest rank, the others stopped: no quorum, and the error names them") {
  Config config = fault_config();
  config.suspicion_ms = 1'500;
  config.heartbeat_ms = 300;
  Job job;
  job.start(
      2,
      [](Here& here) {
        Communicator group = Communicator::join(here.options);
        here.say("ready");
        outcome([&] {
          while (true) group.barrier();
        });
        here.say(outcome([&] { group = group.shrink(std::chrono::seconds(20)); }));
      },
      config);
  job.expect_all("ready");
  ::kill(job[0].pid(), SIGSTOP);
  const std::string said = job[1].hear();
  CHECK(said.find("NO_QUORUM [0] shrink on rank 1: no quorum: nobody goes on, since rank 0 (host ") == 0);
  ::kill(job[0].pid(), SIGKILL);
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
  ::kill(job[3].pid(), SIGKILL);
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
      ::kill(job[3].pid(), SIGKILL);
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

TEST_CASE("a step that any of those who live has committed is committed on all of them") {
  // Rank 3 dies at a moment of its own in commit(): of the others some have heard of all, and some have not.
  for (int delay = 0; delay < 4; ++delay) {
    CAPTURE(delay);
    Job job;
    job.start(4, [delay](Here& here) {
      Communicator group = Communicator::join(here.options);
      here.say("ready");
      here.await();
      int64_t own = -1;
      const std::string said = outcome([&] {
        if (here.rank() == 3) {
          std::thread([delay] {
            std::this_thread::sleep_for(std::chrono::microseconds(500 * delay + 100));
            ::raise(SIGKILL);
          }).detach();
        }
        for (int64_t step = 0;; ++step) {
          group.commit(step, 7);
          own = step;
        }
      });
      group = group.shrink(std::chrono::seconds(20));
      const bool sound = group.committed() == own || group.committed() == own + 1;
      here.say(fmt::format("{} {}", sound ? "sound" : "unsound", group.committed()));
      here.await();
    });
    job.expect_all("ready");
    job.tell_all("go");
    const std::string first = job[0].hear();
    CHECK(first.find("sound") == 0);
    for (const int r : {1, 2}) CHECK(job[r].hear() == first);
    for (const int r : {0, 1, 2}) job[r].tell("end");
  }
}

// By hand, for docs/faults.md: RONDO_REPEAT=50.
TEST_CASE("the time from a kill to the next right sum") {
  const char* repeat = std::getenv("RONDO_REPEAT");
  for (const char* transport : {"auto", "tcp"}) {
    std::vector<int64_t> times;
    for (int i = 0; i < (repeat != nullptr ? std::atoi(repeat) : 2); ++i) {
      Job job;
      job.start(
          4,
          [](Here& here) {
            Communicator group = Communicator::join(here.options);
            here.say("ready");
            lose_and_go_on(here, group);
            here.await();
          },
          with_transport(transport));
      job.expect_all("ready");
      const int victim = i % 4;
      ::kill(job[victim].pid(), SIGKILL);
      const auto killed = Clock::now();
      for (int r = 0; r < 4; ++r) {
        if (r == victim) continue;
        job[r].hear();
        CHECK(job[r].hear().find("of 3 as rank") != std::string::npos);
      }
      times.push_back(std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - killed).count());
      for (int r = 0; r < 4; ++r) {
        if (r != victim) job[r].tell("end");
      }
    }
    std::sort(times.begin(), times.end());
    MESSAGE(std::string(transport) << ": median " << times[times.size() / 2] << " us, worst " << times.back()
                                   << " us of " << times.size());
  }
}

}  // namespace rondo::testing
