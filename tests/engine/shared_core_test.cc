// Two ranks that could have a core each, and share one by chance.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "ring/base/cores.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr float kMostUs = 60;

double cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

struct Window {
  float us = 0;     // of one all_reduce of 8 bytes
  bool own = true;  // the two ranks had the core for themselves
};

// 20 ms of calls. The same on all ranks.
Window run_window(Communicator& group) {
  const auto begin = Clock::now();
  const double cpu = cpu_us();
  double took_us = 0;
  int calls = 0;
  for (float done = 0; done == 0; ++calls) {
    took_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    done = took_us > 20'000 ? 1.0f : 0.0f;
    group.all_reduce(&done, &done, 1, DType::kFloat32);
  }
  float us = static_cast<float>(took_us / calls), used = static_cast<float>((cpu_us() - cpu) / took_us);
  group.all_reduce(&us, &us, 1, DType::kFloat32, Op::kMax);
  group.all_reduce(&used, &used, 1, DType::kFloat32);
  return {us, used > 0.9f};
}

// After somebody else had the core, ranks poll for a while instead of yielding (YieldBackoff::kLongest): in windows.
constexpr int kLongestPoll = 25;

// The fastest of ten windows in which, and for a while before which, nobody else worked on the core; of fewer, if the
// machine is too busy for ten.
float fastest_window_us(Communicator& group) {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  float least = kMostUs;
  int own = 0;  // in a row
  for (float over = 0; over == 0;) {
    const Window window = run_window(group);
    own = window.own ? own + 1 : 0;
    if (own > kLongestPoll) least = std::min(own == kLongestPoll + 1 ? window.us : least, window.us);
    over = own == kLongestPoll + 10 || Clock::now() > deadline ? 1.0f : 0.0f;
    group.all_reduce(&over, &over, 1, DType::kFloat32, Op::kMax);
  }
  return least;
}

}  // namespace

TEST_CASE("ranks that come to share a core give it to each other, and do not poll for 200 us a call") {
  CHECK(run_processes(ranks_over("shm"), [](Communicator& group) {
          const cpu_set_t allowed = allowed_cores();
          int core = 0;
          while (!CPU_ISSET(core, &allowed)) ++core;
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(core, &one);
          expect(sched_setaffinity(0, sizeof one, &one) == 0, "cannot be bound to one core");
          const float us = fastest_window_us(group);
          expect(us <= kMostUs, fmt::format("rank {}: {:.1f} us a call", group.rank(), us));
        }) == "");
}

}  // namespace rondo::testing
