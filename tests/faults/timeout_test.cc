// Ranks that are alive and absent: the deadline of the call ends it on all ranks, naming those that never came.
#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr std::chrono::milliseconds kDeadline{700};

void reduce(Communicator& group, uint64_t count) {
  std::vector<float> values(count, 1);
  group.all_reduce(values.data(), values.data(), count, DType::kFloat32, Op::kSum, {.timeout = kDeadline});
}

}  // namespace

TEST_CASE("fault 14: a rank that never makes the call: a timeout at the deadline on all ranks, naming it") {
  Config config = fault_config();
  config.heartbeat_ms = 100;
  config.suspicion_ms = 600;  // a rank that is late is no silent one: heartbeats go on while it computes
  config.stall_ms = 100;
  for (const uint64_t count : {uint64_t{8}, uint64_t{1} << 20}) {
    CAPTURE(count);
    Job job;
    job.start(
        4,
        [&](Here& here) {
          Communicator group = Communicator::join(here.options);
          here.say("ready");
          here.await();
          if (here.rank() == 2) eventually([&] { return group.error().has_value(); });
          here.say(here.timed([&] { reduce(group, count); }));
          here.say(outcome([&] { group.barrier(); }));
          here.say(here.timed([&] { group.destroy(); }));
        },
        config);
    job.expect_all("ready");
    job.tell_all("go");
    for (int rank = 0; rank < 4; ++rank) {
      CAPTURE(rank);
      const Timed said = timed_line(job[rank].hear());
      CAPTURE(said.outcome);
      CHECK(said.begins("TIMEOUT [2] all_reduce("));
      CHECK(said.has("these ranks have not made the call: 2; the ranks waited "));
      CHECK(said.has(", which has not begun it "));
      if (rank != 2) CHECK(said.elapsed_ms >= kDeadline.count() - 100);
      check_within(14, said.elapsed_ms, kDeadline.count() + 1'000);
      CHECK(job[rank].hear() == said.outcome);
      const Timed destroyed = timed_line(job[rank].hear());
      CHECK(destroyed.outcome == "ok");
      CHECK(destroyed.elapsed_ms < 1'000);
    }
  }
}

TEST_CASE("fault 14: two absent ranks are both listed, by a Work as by a blocking call") {
  Job job;
  job.start(4, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    here.await();
    std::vector<float> values(100);
    here.say(outcome([&] {
      if (here.rank() < 2) {
        eventually([&] { return group.error().has_value(); });
        throw Exception(*group.error());
      }
      Call call;
      call.input = call.output = values.data();
      call.count = values.size();
      call.options.timeout = kDeadline;
      Work work = group.start(call);
      Work next = group.start(call);
      if (work.wait(std::chrono::milliseconds(50))) throw Exception(ErrorCode::kInternal, "it cannot be done");
      if (!eventually([&] { return work.done() && next.done(); }))
        return;  // nobody waits: the progress thread sees the deadline
      if (next.error()->code != ErrorCode::kTimeout) return;
      work.wait();
    }));
    here.await();
  });
  job.expect_all("ready");
  job.tell_all("go");
  for (int rank = 0; rank < 4; ++rank) {
    const std::string said = job[rank].hear();
    CAPTURE(said);
    CHECK(said.find("TIMEOUT [0,1] all_reduce(count=100, float32, sum, ") == 0);
  }
}

TEST_CASE("a call behind others ends at its deadline, though each of them is soon over") {
  constexpr std::chrono::milliseconds kBetweenCalls{50};
  constexpr int kCalls = 100;
  Job job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    group.barrier();
    float value = 1;
    here.say(here.timed([&] {
      for (int i = 0; i < kCalls; ++i) {
        if (here.rank() == 0) {
          group.barrier_async();
        } else {
          std::this_thread::sleep_for(kBetweenCalls);
          group.barrier();
        }
      }
      group.all_reduce_async(&value, &value, 1, DType::kFloat32, Op::kSum, {.timeout = kDeadline}).wait();
    }));
    here.await();
  });
  for (int rank = 0; rank < 2; ++rank) {
    const Timed said = timed_line(job[rank].hear());
    CAPTURE(said.outcome);
    CHECK(said.begins("TIMEOUT "));
    CHECK(said.has("all_reduce(count=1, float32, sum, "));
    CHECK(said.elapsed_ms < kDeadline.count() + 1'000);
  }
}

TEST_CASE("two ranks that send to each other first: the error at the deadline says that they wait for each other") {
  Job job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    const std::vector<float> values(1 << 20, 1);
    here.say(outcome([&] {
      group.send(values.data(), values.size(), DType::kFloat32, 1 - here.rank(), 0,
                 {.timeout = std::chrono::milliseconds(2'000)});
    }));
    here.await();
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string said = job[rank].hear();
    CAPTURE(said);
    CHECK(said.find("TIMEOUT") == 0);
    CHECK(said.find("did not complete before its deadline: rank") != std::string::npos);
    CHECK(said.find("waits in send(4194304 bytes to rank") != std::string::npos);
    CHECK(said.find(": these ranks wait for each other") != std::string::npos);
  }
}

TEST_CASE("two communicators in opposite orders: the error at the deadline names both, and what waits in them") {
  struct Use {
    std::string name;
    std::function<void(Communicator& group, int peer)> call;
  };
  const std::vector<Use> uses{
      {"barrier()", [](Communicator& group, int) { group.barrier({.timeout = 2 * kDeadline}); }},
      {"recv(1 bytes from rank",
       [](Communicator& group, int peer) {
         uint8_t byte = 0;
         group.recv(&byte, 1, DType::kUint8, peer, 0, {.timeout = 2 * kDeadline});
       }},
  };
  for (const Use& of_rank_1 : uses) {
    for (const char* transport : {"tcp", "auto"}) {
      CAPTURE(of_rank_1.name);
      Config config = fault_config(transport);
      Job job;
      job.start(
          2,
          [&](Here& here) {
            Communicator one = Communicator::join(here.options);
            Communicator other = one.dup();
            here.say(outcome([&] { here.rank() == 0 ? reduce(one, 8) : of_rank_1.call(other, 0); }));
            here.await();
          },
          config);
      const std::string said = job[0].hear();
      CAPTURE(said);
      CHECK(said.find("TIMEOUT [1] all_reduce(") == 0);
      CHECK(said.find("after the first rank: it waits in " + of_rank_1.name) != std::string::npos);
      const size_t theirs = said.find(" of communicator 0x"), ours = said.find(", and this call is of communicator 0x");
      CHECK(theirs < ours);
      CHECK(said.find(" (world ranks 0, 1), and this") != std::string::npos);
    }
  }
}

TEST_CASE("a second join() of one rank of a job: both sides are told that it is a second group, for all ranks") {
  Config config = fault_config();
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

}  // namespace rondo::testing
