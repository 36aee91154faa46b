// A communicator costs no descriptors and little memory inside a host, ranks as processes, and a wait for its ranks no
// processor time.
//   --groups=N: so many, for measurements
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/engine/arguments.h"
#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {
namespace {

constexpr size_t kKiB = 1024;

// In KiB, of a file of /proc with lines "name: number kB".
size_t kib_of(const char* file, const std::string& name) {
  std::ifstream facts(file);
  for (std::string line; std::getline(facts, line);) {
    if (line.rfind(name, 0) == 0) return std::stoul(line.substr(name.size()));
  }
  return 0;
}

struct Cost {
  size_t descriptors, mappings;
  // KiB: this process's memory, and its share of what it shares (Pss), with page tables. Not the program's own pages,
  // whose shares change with what other processes have touched of it.
  size_t own;
  size_t resident;  // KiB: all that it maps
  static Cost now() {
    const Resources here = Resources::settled();
    return {here.descriptors, here.mappings,
            kib_of("/proc/self/smaps_rollup", "Pss_Anon:") + kib_of("/proc/self/smaps_rollup", "Pss_Shmem:") +
                kib_of("/proc/self/status", "VmPTE:"),
            kib_of("/proc/self/smaps_rollup", "Rss:")};
  }
};

void sum(Communicator& group, size_t count) {
  std::vector<float> values(count, 1.0f);
  group.all_reduce(values);
  expect(values.front() == 4.0f && values.back() == 4.0f, "a wrong sum");
}

void pass_on(Communicator& group) {
  const int next = (group.rank() + 1) % 4, before = (group.rank() + 3) % 4;
  float out = static_cast<float>(group.rank()), in = -1;
  group.sendrecv(&out, 1, next, &in, 1, before, DType::kFloat32, 0, {});
  expect(in == static_cast<float>(before), "a wrong message");
}

// What one of `count` groups costs each rank, after `use`.
template <typename Use>
std::string cost_of_groups(size_t count, size_t most_mappings, size_t most_kib, const Use& use) {
  RankGroup shape = ranks_over("shm", 4);
  return run_processes(shape, [&](Communicator& world) {
    sum(world, 1);
    use(world);
    world.barrier();
    const Cost before = Cost::now();
    world.barrier();
    std::vector<Communicator> groups;
    for (size_t i = 0; i < count; ++i) {
      groups.push_back(world.split(0, world.rank()));
      use(groups.back());
    }
    world.barrier();
    const Cost after = Cost::now();
    world.barrier();
    const std::string cost = fmt::format("{} groups: {} descriptors, {} mappings, {} KiB ({} KiB resident)", count,
                                         after.descriptors - before.descriptors, after.mappings - before.mappings,
                                         after.own - before.own, after.resident - before.resident);
    if (world.rank() == 0) std::fprintf(stderr, "%s\n", cost.c_str());
    expect(after.descriptors <= before.descriptors, cost);
    expect(after.mappings <= before.mappings + most_mappings, cost);
    expect(after.own <= before.own + most_kib, cost);
  });
}

std::chrono::nanoseconds processor_time(pthread_t thread) {
  clockid_t clock;
  timespec time;
  expect(pthread_getcpuclockid(thread, &clock) == 0 && clock_gettime(clock, &time) == 0, "a thread without a clock");
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

TEST_CASE("groups that have made a small call") {
  const size_t groups = argument("groups", 100);
  CHECK(cost_of_groups(groups, groups / 50 + 16, groups * 33, [](Communicator& group) { sum(group, 2); }) == "");
}

TEST_CASE("groups that have made a large call, and sent a message") {
  // What a large call takes once: rings of posts (2 MiB a rank); what each message stream takes: 2 MiB at most.
  CHECK(cost_of_groups(20, 20 * 12, 20 * 4 * kKiB, [](Communicator& group) {
          sum(group, 2);
          sum(group, 256 * kKiB);
          pass_on(group);
        }) == "");
}

TEST_CASE("a rank that waits for the others of a new group sleeps, since its I/O thread may need its core") {
  using std::chrono::milliseconds;
  RankGroup threads;
  threads.config.spin_us = 10'000'000;  // elsewhere it polls for as long
  std::atomic<bool> begun{false};
  pthread_t first{};
  CHECK(run_threads(threads, [&](Communicator& group) {
          if (group.rank() == 0) {
            first = pthread_self();
            begun = true;
          } else {
            const auto deadline = std::chrono::steady_clock::now() + milliseconds(500);
            while (!begun) std::this_thread::yield();
            const auto before = processor_time(first);
            const auto used = [&] { return processor_time(first) - before; };
            while (used() < milliseconds(50) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
            expect(used() < milliseconds(50), "it polls");
          }
          group.dup();
        }) == "");
}

}  // namespace rondo::testing
