// Memory that ranks share: who lets go gets it back, and what cannot be had ends in an error on all ranks; ranks as
// processes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/ranks.h"
#include "tests/support/rank_group.h"
#include "tests/support/refuse.h"

namespace rondo::testing {
namespace {

constexpr size_t kLarge = 64u << 20;

// Bytes of shared memory of the library that this process maps.
size_t mapped() {
  std::ifstream maps("/proc/self/maps");
  size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (line.find("memfd:rondo") == std::string::npos) continue;
    expect(std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2, line);
    bytes += end - begin;
  }
  return bytes;
}

Call sum_of(float* values, uint64_t count) {
  Call call;
  call.input = call.output = values;
  call.count = count;
  return call;
}

using Values = std::vector<float>;

void sum(Communicator& group, Values& values) { group.run(sum_of(values.data(), values.size())); }

void sum_small_list(Communicator& group, Values& values) {
  const uint64_t half = values.size() / 2;
  const TensorRef tensors[] = {{values.data(), values.data(), half, DType::kFloat32},
                               {values.data() + half, values.data() + half, half, DType::kFloat32}};
  group.all_reduce_many(tensors);
}

void without_memory() { refuse(SYS_memfd_create); }

void without_threads() {
  refuse(SYS_clone3);
  refuse(SYS_clone);
}

// A call of two ranks for which rank 1 lacks something.
struct Failing {
  std::function<void(Communicator&, Values&)> call;
  std::function<void()> lack = without_memory;  // done on rank 1 before the call
  const char* what = "memfd_create: ";          // named by the error
  size_t count = 2000;
  bool after_a_sum = true;  // the memory of small calls is there already
  Config config = fault_config("shm");
};

// The call ends on both ranks, soon, a later one likewise, and the values are as they were before.
void expect_failure(const Failing& failing) {
  Job job;
  job.start(
      2,
      [&](Here& here) {
        Communicator group = Communicator::join(here.options);
        Values values(failing.count, 1);
        failing.after_a_sum ? sum(group, values) : group.barrier();
        const Values before = values;
        here.say("ready");
        here.await();
        if (here.rank() == 1) failing.lack();
        here.say(here.timed([&] { failing.call(group, values); }));
        here.say(outcome([&] { group.barrier(); }));
        here.say(values == before ? "untouched" : "overwritten");
      },
      failing.config);
  job.expect_all("ready");
  job.tell_all("go");
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const Timed ended = timed_line(job[rank].hear());
    CAPTURE(ended.outcome);
    CHECK(ended.elapsed_ms >= 0);
    CHECK(ended.elapsed_ms < 2'000);
    CHECK(ended.begins("SYSTEM [1] rank 1 (host "));
    CHECK(ended.has(failing.what));
    CHECK(job[rank].hear() == ended.outcome);  // the communicator has failed
    CHECK(job[rank].hear() == "untouched");
  }
}

}  // namespace

TEST_CASE("registered memory that all ranks give back is unmapped in all of them, used or not") {
  CHECK(run_processes(ranks_over("shm", 3), [](Communicator& group) {
          std::vector<float> plain(1000, 1);
          group.run(sum_of(plain.data(), plain.size()));  // the communicator's own
          group.barrier();
          const size_t before = mapped();
          for (int round = 0; round < 3; ++round) {
            auto* memory = static_cast<float*>(group.allocate(kLarge));
            memory[0] = memory[kLarge / sizeof(float) - 1] = 1;
            group.run(sum_of(memory, kLarge / sizeof(float)));
            group.run(sum_of(memory, kLarge / sizeof(float)));
            expect(memory[kLarge / sizeof(float) - 1] == 9, "a wrong sum");
            expect(mapped() >= before + 3 * kLarge, "it is not mapped");
            group.barrier();
            group.deallocate(memory);
            expect(eventually([&] { return mapped() == before; }),
                   fmt::format("round {}: {} bytes are mapped, {} before", round, mapped(), before));
            group.barrier();
          }
        }) == "");
}

TEST_CASE("memory of a rank that dies is unmapped by those that live on") {
  Job job;
  job.start(
      3,
      [](Here& here) {
        Communicator group = Communicator::join(here.options);
        auto* memory = static_cast<float*>(group.allocate(kLarge));
        group.run(sum_of(memory, kLarge / sizeof(float)));
        group.barrier();
        const size_t before = mapped();
        here.say("ready");
        here.await();
        const bool gone = eventually([&] { return mapped() + kLarge <= before; });
        here.say(gone ? "gone" : fmt::format("{} bytes are mapped, {} before", mapped(), before));
      },
      fault_config("shm"));
  job.expect_all("ready");
  job[1].signal(SIGKILL);
  for (const int rank : {0, 2}) {
    job[rank].tell("go");
    CHECK(job[rank].hear() == "gone");
  }
}

TEST_CASE("more pieces of memory than the others map are refused, and nothing is broken by asking") {
  CHECK(run_processes(ranks_over("shm"), [](Communicator& group) {
          std::vector<float> plain(1000, 1);
          group.run(sum_of(plain.data(), plain.size()));
          std::vector<void*> pieces;
          std::string refusal;
          while (group.rank() == 1 && refusal.empty() && pieces.size() < 20'000) {
            try {
              pieces.push_back(group.allocate(1));
            } catch (const Exception& e) {
              refusal = fmt::format("{}: {}", error_code_name(e.code()), e.what());
            }
          }
          if (group.rank() == 1) {
            expect(refusal.find("SYSTEM: ") == 0 && refusal.find("16384 pieces of memory") != std::string::npos,
                   refusal);
          }
          for (void* piece : pieces) group.deallocate(piece);
          group.run(sum_of(plain.data(), plain.size()));
          expect(plain[0] == 4, "a wrong sum");
        }) == "");
}

TEST_CASE("a list whose memory one rank cannot have fails on all ranks, at once") {
  expect_failure({.call = sum_small_list});
}

TEST_CASE(
    "a group that one rank cannot make fails on all of its ranks, at once, and the one that it came from goes on") {
  constexpr int kReversed[] = {2, 1, 0};
  for (const bool split : {true, false}) {
    CAPTURE(split);
    Job job;
    job.start(
        3,
        [&](Here& here) {
          Communicator group = Communicator::join(here.options);
          std::vector<float> values(2000, 1);
          group.run(sum_of(values.data(), values.size()));
          here.say("ready");
          here.await();
          if (here.rank() == 1) refuse(SYS_memfd_create);
          std::vector<Communicator> groups;  // the first of them share memory that is there
          here.say(here.timed([&] {
            for (int i = 0; i < 8; ++i) {
              groups.push_back(split ? group.split(0, -here.rank()) : group.new_group(kReversed));
            }
          }));
          here.say(outcome([&] { group.run(sum_of(values.data(), values.size())); }));
        },
        fault_config("shm"));
    job.expect_all("ready");
    job.tell_all("go");
    for (int rank = 0; rank < 3; ++rank) {
      CAPTURE(rank);
      const Timed ended = timed_line(job[rank].hear());
      CAPTURE(ended.outcome);
      CHECK(ended.elapsed_ms < 2'000);
      CHECK(ended.begins("SYSTEM [1] rank 1 (host "));
      CHECK(ended.has("memfd_create: "));
      CHECK(job[rank].hear() == "ok");
    }
  }
}

TEST_CASE("a first call of its size whose memory one rank cannot have fails on all ranks, at once") {
  // Proves: of each kind of memory that is made when it is first needed: slots, ring of posts, staging.
  for (const size_t count : {500, 10'000, 200'000}) {
    CAPTURE(count);
    Failing failing{.call = sum, .count = count, .after_a_sum = false};
    failing.config.single_copy = "off";
    if (count == 200'000) failing.config.algorithm = Algorithm::kStaged;
    expect_failure(failing);
  }
}

TEST_CASE("what a rank has posted stays for those that come after it has left") {
  for (const size_t count : {1, 500, 3'000}) {  // beside its flag, in a slot, in the ring
    CAPTURE(count);
    Job job;
    Config config = fault_config("shm");
    config.destroy_timeout_ms = 1;
    config.algorithm = Algorithm::kOneShot;
    job.start(
        2,
        [&](Here& here) {
          Communicator group = Communicator::join(here.options);
          Communicator part = group.split(0, here.rank());
          std::vector<float> values(count, here.rank() == 0 ? 7.0f : 0.0f);
          const auto call = [&] { part.broadcast(values.data(), count, DType::kFloat32, 0); };
          if (here.rank() == 0) {
            call();
            part.destroy();
            here.say("left");
          }
          here.await();
          if (here.rank() == 1) {
            const std::string ended = outcome(call);
            here.say(values.back() == 7 ? ended : "a wrong value; " + ended);
          }
          here.await();
        },
        config);
    CHECK(job[0].hear() == "left");
    job[1].tell("go");
    CHECK(job[1].hear() == "ok");
    job.tell_all("end");
    job[0].tell("end");
  }
}

TEST_CASE("no thread for operations that nobody waits for: nothing is begun, and all ranks hear of it") {
  // Proves: of each such call; blocking ones need no thread.
  using Start = std::function<void(Communicator&, Values&)>;
  const std::vector<Start> starts{
      [](Communicator& group, Values& values) { group.start(sum_of(values.data(), values.size())); },
      [](Communicator& group, Values& values) {
        const TensorRef tensor{values.data(), values.data(), values.size(), DType::kFloat32};
        group.all_reduce_many_async({&tensor, 1});
      },
      [](Communicator& group, Values& values) {
        group.batch_begin();
        sum(group, values);
        group.batch_end_async();
      },
      [](Communicator& group, Values& values) {
        group.batch_begin();  // blocking, with a message beside a collective
        sum(group, values);
        group.send(values.data(), 1, DType::kFloat32, 0);
        group.batch_end();
      },
      [](Communicator& group, Values& values) { group.send_async(values.data(), 1, DType::kFloat32, 0); },
      [](Communicator& group, Values& values) { group.recv_async(values.data(), 1, DType::kFloat32, 0); },
  };
  for (size_t i = 0; i < starts.size(); ++i) {
    CAPTURE(i);
    const auto call = [&](Communicator& group, Values& values) {
      group.rank() == 1 ? starts[i](group, values) : sum(group, values);
    };
    expect_failure({.call = call, .lack = without_threads, .what = "rondo-progress"});
  }
}

}  // namespace rondo::testing
