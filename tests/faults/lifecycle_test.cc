// The end of a communicator, by abort() and destroy(), with others at work on it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

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

void reduce(Communicator& group, uint64_t count = 1000) {
  std::vector<float> values(count, 1);
  group.all_reduce(values.data(), values.data(), count, DType::kFloat32);
}

}  // namespace

TEST_CASE("abort from another thread ends what all ranks wait in, with the reason") {
  // Proves: a collective, a receive and a Work that nobody waits for, on the aborting rank and on the others.
  for (const bool messages : {false, true}) {
    CAPTURE(messages);
    Job job;
    job.start(4, [&](Here& here) {
      Communicator group = Communicator::join(here.options);
      here.say("ready");
      std::thread aborter;
      if (here.rank() == 1) {
        aborter = std::thread([&] {
          here.await();
          group.abort("the learning rate is not a number");
        });
      }
      here.say(outcome([&] {
        if (here.rank() == 3) {  // never calls: hears of it by its error
          eventually([&] { return group.error().has_value(); });
          throw Exception(*group.error());
        }
        float value = 0;
        if (messages) group.recv(&value, 1, DType::kFloat32, 3);
        reduce(group);
      }));
      if (aborter.joinable()) aborter.join();
      here.say(outcome([&] { group.barrier(); }));
      here.say(here.timed([&] { group.destroy(); }));
    });
    job.expect_all("ready");
    job[1].tell("go");
    const auto start = std::chrono::steady_clock::now();
    for (int rank = 0; rank < 4; ++rank) {
      CAPTURE(rank);
      const std::string said = job[rank].hear();
      CHECK(said == "ABORTED [1] rank 1 aborted the group: the learning rate is not a number");
      CHECK(job[rank].hear() == said);
      const Timed destroyed = timed_line(job[rank].hear());
      CHECK(destroyed.outcome == "ok");
      CHECK(destroyed.elapsed_ms < kSoonMs);
      CHECK(job[rank].wait() == 0);
    }
    CHECK(ms_since(start) < 2 * kSoonMs);
  }
}

TEST_CASE("fault 69: abort on all ranks at once ends them all") {
  Job job;
  job.start(4, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    here.await();
    std::thread aborter([&] { group.abort(fmt::format("number {}", here.rank())); });
    here.say(here.timed([&] {
      while (true) reduce(group, kLarge);
    }));
    aborter.join();
    group.destroy();
  });
  job.expect_all("ready");
  job.tell_all("go");
  for (int rank = 0; rank < 4; ++rank) {
    const Timed said = timed_line(job[rank].hear());
    CHECK(said.begins("ABORTED ["));
    CHECK(said.has("aborted the group: number "));
    check_within(69, said.elapsed_ms, kSoonMs);
    CHECK(job[rank].wait() == 0);
  }
}

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
      std::vector<std::thread> threads;
      for (size_t i = 0; i < groups.size(); ++i) {
        threads.emplace_back([&, i] {
          ends[i] = outcome([&] {
            float value = 0;
            while (i != 2) reduce(groups[i], i == 3 ? 11 : kLarge / 8);
            groups[i].recv(&value, 1, DType::kFloat32, kAnySource);
          });
        });
      }
      here.say(here.timed([&] {
        for (const size_t i : order) {
          std::this_thread::sleep_for(std::chrono::milliseconds(random.below(15)));
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
    here.say(here.timed([&] { reduce(group, kLarge); }));
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

TEST_CASE("destroying early is no crash to those who still work on the same calls") {
  // Proves: every rank gets the sum though others have left already; the call that lacks them names one that left.
  for (int round = 0; round < 5; ++round) {
    CAPTURE(round);
    Job job;
    job.start(4, [&](Here& here) {
      Communicator group = Communicator::join(here.options);
      std::vector<float> values(kLarge, 1);
      here.say(outcome([&] { group.all_reduce(values.data(), values.data(), kLarge, DType::kFloat32); }));
      here.say(fmt::format("{} {}", values.front(), values.back()));
      if (here.rank() % 2 == 0) {
        here.say(outcome([&] { group.barrier(); }));
        here.await();
      }
      group.destroy();
    });
    for (int rank = 0; rank < 4; ++rank) {
      CHECK(job[rank].hear() == "ok");
      CHECK(job[rank].hear() == "4 4");
    }
    for (const int rank : {0, 2}) {
      const std::string said = job[rank].hear();
      CAPTURE(said);
      CHECK((said.find("PEER_LEFT [1] barrier() ") == 0 || said.find("PEER_LEFT [3] barrier() ") == 0));
    }
    job[0].tell("go");
    job[2].tell("go");
    for (RankProcess& rank : job.ranks) CHECK(rank.wait() == 0);
  }
}

TEST_CASE("a message whose send has returned arrives, though its sender has left before the receiver looked") {
  // Proves: the goodbye, which comes by the control connection, does not overtake the stream of the first message,
  // which comes by the island's. The question why a barrier does not move makes the control connection ready first.
  Config config = fault_config();
  config.transport = "shm";
  config.stall_ms = 50;
  Job job;
  job.start(
      2,
      [](Here& here) {
        Communicator world = Communicator::join(here.options);
        Communicator group = world.split(0);
        group.barrier();
        here.say("ready");
        here.await();
        int value = 42;
        if (here.rank() == 1) {
          value = 0;
          const std::string received = outcome([&] { group.recv(&value, 1, DType::kInt32, 0); });
          here.say(fmt::format("{} {}", received, value));
          world.barrier();
          return;
        }
        Call barrier;
        barrier.collective = Collective::kBarrier;
        Work work = world.start(barrier);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until it has asked
        group.send(&value, 1, DType::kInt32, 1);
        here.say("sent");
        group.destroy();
        work.wait();
      },
      config);
  job.expect_all("ready");
  job[1].signal(SIGSTOP);
  job[0].tell("go");
  CHECK(job[0].hear() == "sent");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // destroy() has said goodbye, and waits for the other
  job[1].signal(SIGCONT);
  job[1].tell("go");
  CHECK(job[1].hear() == "ok 42");
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

TEST_CASE("a group that fails leaves its sibling and its parent at work") {
  Job job;
  job.start(4, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    Communicator half = group.split(here.rank() % 2);
    if (here.rank() % 2 == 1) {
      here.say(outcome([&] { reduce(half, here.rank() == 1 ? 10 : 11); }));
    } else {
      here.say(outcome([&] { reduce(half, 10); }));
    }
    here.say(outcome([&] { reduce(group); }));
    if (here.rank() % 2 == 0) here.say(outcome([&] { reduce(half, kLarge); }));
    Communicator next = group.split(0);
    here.say(outcome([&] { next.barrier(); }));
    group.barrier();
  });
  for (int rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    const std::string said = job[rank].hear();
    CAPTURE(said);
    if (rank % 2 == 0) {
      CHECK(said == "ok");
      CHECK(job[rank].hear() == "ok");
    } else {
      CHECK(said.find("MISMATCH [0,1] ") == 0);
      CHECK(said.find("rank 0 (world rank 1, host ") != std::string::npos);
    }
    CHECK(job[rank].hear() == "ok");
    CHECK(job[rank].hear() == "ok");
    CHECK(job[rank].wait() == 0);
  }
}

TEST_CASE("a caller's mistake is thrown before anything happens, and the communicator goes on") {
  Job job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    std::vector<float> values(100, 1);
    float* data = values.data();
    const auto expect_invalid = [&](const std::function<void()>& call) {
      const std::string said = outcome(call);
      if (said.find("INVALID [] ") != 0) here.say("not invalid: " + said);
    };
    constexpr uint64_t kHuge = uint64_t{1} << 62;
    expect_invalid([&] { group.all_reduce(data, data + 1, 50, DType::kFloat32); });
    expect_invalid([&] { group.all_reduce(nullptr, data, 50, DType::kFloat32); });
    expect_invalid([&] { group.all_reduce(data, nullptr, 50, DType::kFloat32); });
    expect_invalid([&] { group.all_reduce(data, data, kHuge, DType::kFloat32); });
    expect_invalid([&] { group.all_reduce(data, data, UINT64_MAX, DType::kInt8); });
    expect_invalid([&] { group.all_gather(data, data + 50, kHuge / 4, DType::kFloat32); });
    expect_invalid([&] { group.all_to_all(data, data, 10, DType::kFloat32); });
    expect_invalid([&] { group.all_reduce(data, data, 10, DType::kFloat32, Op::kBitAnd); });
    expect_invalid([&] { group.broadcast(data, 10, DType::kFloat32, 2); });
    expect_invalid([&] { group.broadcast(data, 10, DType::kFloat32, -1); });
    expect_invalid([&] { group.send(data, 10, DType::kFloat32, 2); });
    expect_invalid([&] { group.recv(data, 10, DType::kFloat32, 0, -2); });
    expect_invalid([&] { group.send(nullptr, 10, DType::kFloat32, 0); });
    expect_invalid([&] { group.all_reduce(data, data, 10, static_cast<DType>(99)); });
    expect_invalid([&] { group.all_reduce(data, data, 10, DType::kFloat32, static_cast<Op>(99)); });
    expect_invalid([&] { group.barrier({.timeout = std::chrono::milliseconds(-5)}); });
    here.say(outcome([&] { group.all_reduce(nullptr, nullptr, 0, DType::kFloat32); }));
    here.say(outcome([&] { group.all_reduce(data, data, 1, DType::kFloat32); }));
    here.say(fmt::format("{} {}", values[0], values[1]));
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(job[rank].hear() == "ok");
    CHECK(job[rank].hear() == "ok");
    CHECK(job[rank].hear() == "2 1");
  }
}

}  // namespace rondo::testing
