// What takes the place of plans over windows where the kernel or the settings forbid a part of them; ranks as
// processes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ring/base/types.h"
#include "rondo/communicator.h"
#include "tests/engine/cases.h"
#include "tests/engine/said.h"
#include "tests/engine/window_cases.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"
#include "tests/support/refuse.h"

namespace {

std::chrono::milliseconds pull_takes{0};  // at least
std::atomic<int> pulls = 0;

}  // namespace

// In the place of the C library's.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                    unsigned long there_count, unsigned long flags) {
  ++pulls;
  std::this_thread::sleep_for(pull_takes);
  return syscall(SYS_process_vm_readv, process, here, here_count, there, there_count, flags);
}

namespace rondo::testing {
namespace {

constexpr Algorithm kOverWindows[] = {Algorithm::kWindow, Algorithm::kStaged, Algorithm::kPull, Algorithm::kRegistered};

RankGroup shape_of(int world) {
  RankGroup shape{.world = world};
  shape.config.staging_bytes = 64 * 1024;
  return shape;
}

Call sum_of(std::vector<float>& values, Algorithm algorithm = Algorithm::kAuto) {
  Call call;
  call.input = call.output = values.data();
  call.count = values.size();
  call.options.algorithm = algorithm;
  return call;
}

// Every collective of some sizes without an algorithm asked for, with plain buffers, with those of allocate(), and with
// either on every second rank.
void run_all_buffers(Communicator& group) {
  RegisteredMemory allocated(group);
  for (const CollectiveCase& what : all_shapes({group.size(), {1, 1237, 30'011}, {group.size() - 1}})) {
    for (const bool mine : {false, true, group.rank() % 2 == 0}) {
      run_case(group, what, Algorithm::kAuto, mine ? &allocated : std::pmr::get_default_resource());
    }
  }
}

// There is no plan over windows here: so it is said, on every rank, and nothing is broken by asking.
void expect_no_windows(Communicator& group) {
  expect(!group.topology().one_island(), "all ranks share memory");
  std::vector<float> values(1000, 1);
  for (const Algorithm algorithm : kOverWindows) {
    expect_error([&] { group.run(sum_of(values, algorithm)); }, ErrorCode::kInvalid,
                 fmt::format("all_reduce on rank {}: there is no {} algorithm for it in a group of {}", group.rank(),
                             algorithm_name(algorithm), group.size()));
  }
}

}  // namespace

TEST_CASE("pull where one rank may not: refused on all ranks, and the others' buffers are staged instead") {
  RankGroup shape = shape_of(3);
  shape.config.transport = "shm";
  shape.config.single_copy = "on";
  shape.before = [](int rank) {
    if (rank == 1) refuse(SYS_process_vm_readv);
  };
  CHECK(run_processes(shape, [](Communicator& group) {
          std::vector<float> values(1000, 1);
          expect_error([&] { group.run(sum_of(values, Algorithm::kPull)); }, ErrorCode::kInvalid,
                       "this system does not let one process read another's memory, and the buffers of rank 0 are not "
                       "registered");
          run_all_buffers(group);
          // Registered buffers need no leave of the kernel.
          RegisteredMemory registered(group);
          for (const CollectiveCase& what : all_shapes({3, {1237}, {0}})) {
            if (!what.counts.empty() || what.collective == Collective::kBarrier) continue;
            if (collective_scans(what.collective)) continue;
            run_case(group, what, Algorithm::kPull, &registered);
            run_case(group, what, Algorithm::kRegistered, &registered);
          }
        }) == "");
}

TEST_CASE("RONDO_ALGORITHM=registered: calls on other buffers are refused, and split() is no such call") {
  RankGroup shape = shape_of(3);
  shape.config.transport = "shm";
  shape.config.algorithm = Algorithm::kRegistered;
  CHECK(run_processes(shape, [](Communicator& group) {
          std::vector<float> values(1000, 1);
          expect_error([&] { group.run(sum_of(values)); }, ErrorCode::kInvalid);
          Communicator both = group.split(group.rank() < 2 ? 0 : 1);
          expect(both.size() == (group.rank() < 2 ? 2 : 1), "a wrong group");
        }) == "");
}

TEST_CASE("RONDO_SINGLE_COPY: on pulls, off does not, and auto does not while one shot does") {
  // Proves: which plan ran, by taking the system call away from all ranks after the start.
  for (const char* single_copy : {"on", "auto", "off"}) {
    CAPTURE(single_copy);
    RankGroup shape = shape_of(3);
    shape.config.single_copy = single_copy;
    const bool on = single_copy == std::string("on");
    CHECK(run_processes(shape, [on](Communicator& group) {
            std::vector<float> values(10'000, 1);
            group.run(sum_of(values, Algorithm::kWindow));
            group.barrier();
            refuse(SYS_process_vm_readv);
            group.barrier();
            const Error failure = error_of([&] { group.run(sum_of(values, Algorithm::kWindow)); });
            expect(on != failure.ok(), "with no leave to pull: " + failure.message);
            expect(!on || failure.message.find("rank ") != std::string::npos, failure.message);
          }) == "");
  }
}

TEST_CASE("memory that the kernel will not read: large buffers are staged on all ranks, which one line says") {
  // Proves: pulling is tried before anything is written, so that the call goes on by another route; off never tries.
  for (const char* single_copy : {"auto", "on", "off"}) {
    for (const int forbidden : {1, 2}) {  // ranks that may not
      CAPTURE(single_copy);
      CAPTURE(forbidden);
      RankGroup shape = shape_of(2);
      shape.config.single_copy = single_copy;
      shape.config.debug = "warn";
      const bool tries = single_copy != std::string("off");
      CHECK(run_processes(shape, [=](Communicator& group) {
              const Said said;
              const int at_start = pulls;
              if (group.rank() < forbidden) refuse(SYS_process_vm_readv);
              group.barrier();
              std::vector<float> values(100'000, 1);
              for (int round = 0; round < 12; ++round) group.run(sum_of(values));
              expect(values == std::vector<float>(values.size(), 4096), "a wrong sum");
              expect((pulls > at_start) == tries, fmt::format("{} pulls", pulls - at_start));
              const std::string text = said.text();
              const bool told = text.find("may not read the memory of the other ranks") != std::string::npos;
              expect(told == (tries && group.rank() == 0), text);
              expect(std::count(text.begin(), text.end(), '\n') == (told ? 1 : 0), text);
              expect_error([&] { group.run(sum_of(values, Algorithm::kPull)); }, ErrorCode::kInvalid);
              group.run(sum_of(values));
            }) == "");
    }
  }
}

TEST_CASE("RONDO_SINGLE_COPY=auto tries pulling, and does not keep what takes longer") {
  RankGroup shape = shape_of(2);
  shape.config.shared_stores = "cached";  // no second trials with other stores
  CHECK(run_processes(shape, [](Communicator& group) {
          pull_takes = std::chrono::milliseconds(30);  // longer than staging, under a sanitizer too
          std::vector<float> values(100'000, 0);
          const auto pulls_of = [&](int sums) {
            const int before = pulls;
            for (int i = 0; i < sums; ++i) group.run(sum_of(values));
            return pulls - before;
          };
          expect(pulls_of(20) > 0, "pulling was not tried");
          pulls_of(80);  // until the trials are over, also on a busy machine
          expect(pulls_of(200) == 0, "what takes longer was kept");
        }) == "");
}

TEST_CASE("a rank that may not make shared memory: TCP to it, an island without it, windows for the island alone") {
  RankGroup shape = shape_of(4);
  shape.before = [](int rank) {
    if (rank == 1) refuse(SYS_memfd_create);
  };
  CHECK(run_processes(shape, [](Communicator& group) {
          expect(group.topology().island == std::vector<int>{0, -1, 0, 0}, "rank 1 is no island of its own");
          expect_no_windows(group);
          run_all_buffers(group);
          Communicator part = group.split(group.rank() == 1 ? 1 : 0);
          if (group.rank() == 1) return expect(part.size() == 1, "rank 1 is not alone");
          run_mixed_registration(part);
        }) == "");
}

TEST_CASE("fault 54: no rank may make shared memory: everything works over TCP") {
  RankGroup shape = shape_of(3);
  shape.before = [](int) { refuse(SYS_memfd_create); };
  CHECK(run_processes(shape, [](Communicator& group) {
          expect_no_windows(group);
          run_all_buffers(group);
        }) == "");
}

}  // namespace rondo::testing
