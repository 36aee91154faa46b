// The end of a communicator, by abort() and destroy(), with others at work on it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/ranks.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr int64_t kSoonMs = 1'500;
constexpr uint64_t kLarge = 4 << 20;

}  // namespace

TEST_CASE("fault 69: aborts of several groups, from another thread on every rank, each in an order of its own") {
  // Proves: whatever waits in any of the groups, every rank is out of all of them within 5 s.
  constexpr uint64_t kSeed = 20260806;
  CAPTURE(kSeed);
  for (uint64_t round = 0; round < 8; ++round) {
    CAPTURE(round);
    Job job;
    job.start(4, [&](Here& here) {
      Random random(kSeed + round * 100 + static_cast<uint64_t>(here.rank()));
      std::vector<Communicator> groups(4);
      groups[0] = Communicator::join(here.options);
      groups[1] = groups[0].split(0);
      groups[2] = groups[0].split(here.rank() % 2);
      groups[3] = groups[0].split(here.rank() / 2, -here.rank());
      std::vector<size_t> order{0, 1, 2, 3};
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      here.say("ready");
      here.await();
      std::vector<std::string> ends(groups.size());
      std::atomic<uint64_t> calls = 0;
      std::vector<std::thread> threads;
      for (size_t i = 0; i < groups.size(); ++i) {
        threads.emplace_back([&, i] {
          ends[i] = outcome([&] {
            float value = 0;
            for (; i != 2; ++calls) sum_ones(groups[i], i == 3 ? 11 : kLarge / 8);
            groups[i].recv(&value, 1, DType::kFloat32, kAnySource);
          });
        });
      }
      here.say(here.timed([&] {
        for (const size_t i : order) {
          // At a moment of its own, as long as calls go on.
          const uint64_t moment = calls + random.below(20);
          eventually([&] { return calls >= moment; }, 15);
          groups[i].abort("over");
        }
        for (std::thread& thread : threads) thread.join();
        for (const size_t i : order) groups[order.size() - 1 - i].destroy();
      }));
      for (const std::string& end : ends) here.say(end);
    });
    job.expect_all("ready");
    job.tell_all("go");
    for (RankProcess& rank : job.ranks) {
      const Timed said = timed_line(rank.hear());
      CHECK(said.outcome == "ok");
      check_within(69, said.elapsed_ms, 5'000);
      for (int i = 0; i < 4; ++i) {
        const std::string end = rank.hear();
        CAPTURE(end);
        CHECK(end.find("ABORTED [") == 0);
        CHECK(end.find("aborted the group: over") != std::string::npos);
      }
      CHECK(rank.wait() == 0);
    }
  }
}

TEST_CASE("an abort reaches the others although its process ends right behind it") {
  for (int round = 0; round < 10; ++round) {
    CAPTURE(round);
    Job job;
    job.start(2, [](Here& here) {
      Communicator group = Communicator::join(here.options);
      if (here.rank() == 1) return here.say(outcome([&] { group.barrier(); }));
      group.abort("enough");
      group.destroy();
      ::_exit(0);  // without destructors
    });
    CHECK(job[1].hear().find("ABORTED [0] rank 0 aborted the group: enough") == 0);
  }
}

TEST_CASE("fault 68: destroy: twice is fine, and what is used afterwards is closed") {
  Job job;
  job.start(3, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    std::vector<float> values(kLarge, 1);
    Call call;
    call.input = call.output = values.data();
    call.count = kLarge;
    Work work = group.start(call);
    work.wait();
    here.say(here.timed([&] { group.destroy(); }));
    here.say(here.timed([&] { group.destroy(); }));
    here.say(outcome([&] { group.barrier(); }));
    here.say(outcome([&] { group.send(values.data(), 1, DType::kFloat32, 0); }));
    here.say(outcome([&] { group.split(0); }));
    group.abort("too late to matter");
    here.say(outcome([&] { work.wait(); }));  // a Work outlives its communicator
    here.say(fmt::format("{} {}", values.front(), values.back()));
  });
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    for (int i = 0; i < 2; ++i) {
      const Timed destroyed = timed_line(job[rank].hear());
      CHECK(destroyed.outcome == "ok");
      check_within(68, destroyed.elapsed_ms, kSoonMs);
    }
    for (int i = 0; i < 3; ++i) {
      CHECK(job[rank].hear() == fmt::format("CLOSED [{0}] the communicator was destroyed on rank {0}", rank));
    }
    CHECK(job[rank].hear() == "ok");
    CHECK(job[rank].hear() == "3 3");
    CHECK(job[rank].wait() == 0);
  }
}

TEST_CASE("fault 68: what had failed before destroy is closed afterwards, too, and says why") {
  Job job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    group.abort("over");
    here.say(outcome([&] { group.barrier(); }));
    group.destroy();
    here.say(outcome([&] { group.barrier(); }));
    here.say(std::string(error_code_name(group.error()->code)));
  });
  for (int rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    CHECK(job[rank].hear().find("ABORTED [") == 0);
    const std::string closed = job[rank].hear();
    CAPTURE(closed);
    CHECK(closed.find(fmt::format("CLOSED [{0}] the communicator was destroyed on rank {0}, after it had failed: rank ",
                                  rank)) == 0);
    CHECK(closed.find("aborted the group: over") != std::string::npos);
    CHECK(job[rank].hear() == "CLOSED");
    CHECK(job[rank].wait() == 0);
  }
}

TEST_CASE("fault 68: destroy in mid-operation: closed here, a rank that left to the others") {
  Job job;
  job.start(3, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    if (here.rank() == 2) {
      here.await();  // it never makes the call
      here.say(here.timed([&] { group.destroy(); }));
      return;
    }
    std::thread destroyer;
    if (here.rank() == 1) {
      destroyer = std::thread([&] {
        here.await();
        group.destroy();
      });
    }
    here.say(here.timed([&] { sum_ones(group, kLarge); }));
    if (destroyer.joinable()) destroyer.join();
    here.say(here.timed([&] { group.destroy(); }));
  });
  job.expect_all("ready");
  job[1].tell("go");
  CHECK(timed_line(job[1].hear()).outcome == "CLOSED [1] the communicator was destroyed on rank 1");
  const Timed said = timed_line(job[0].hear());
  CAPTURE(said.outcome);
  CHECK(said.begins("PEER_LEFT [1] all_reduce(count=4194304, float32, sum, "));
  CHECK(said.has("cannot complete on rank 0: rank 1 (host "));
  job[2].tell("go");
  for (int rank = 0; rank < 3; ++rank) {
    const Timed destroyed = timed_line(job[rank].hear());
    CHECK(destroyed.outcome == "ok");
    check_within(68, destroyed.elapsed_ms, 3'000 + kSoonMs);
  }
}

TEST_CASE("leaving beside a stopped rank takes the time of RONDO_DESTROY_TIMEOUT_MS once, whatever is left by it") {
  constexpr int64_t kLimitMs = 1'000;
  Config config = fault_config();
  config.destroy_timeout_ms = kLimitMs;
  for (const char* transport : {"tcp", "auto"}) {
    for (const bool closed : {false, true}) {
      CAPTURE(transport);
      CAPTURE(closed);
      config.transport = transport;
      Job job;
      job.start(
          3,
          [&](Here& here) {
            Communicator group = Communicator::join(here.options);
            group.barrier();
            here.say("ready");
            here.await();
            here.say(here.timed([&] {
              if (closed) group.destroy();
              group = Communicator();  // and the process's connections with it
            }));
          },
          config);
      job.expect_all("ready");
      job[1].signal(SIGSTOP);
      for (const int rank : {0, 2}) job[rank].tell("go");
      for (const int rank : {0, 2}) {
        const Timed left = timed_line(job[rank].hear());
        CHECK(left.outcome == "ok");
        CHECK(left.elapsed_ms >= kLimitMs);
        CHECK(left.elapsed_ms < kLimitMs + 700);
      }
    }
  }
}

}  // namespace rondo::testing
