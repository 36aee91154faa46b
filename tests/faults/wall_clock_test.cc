// The wall clock jumps by an hour, back and forth, while ranks join, call and leave: this binary has its own
// clock_gettime(), gettimeofday() and time(), which the library and the C++ runtime call.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/faults/ranks.h"

namespace {

std::atomic<bool> jumping{false};
std::atomic<int> asked{0};

// Seconds to add: 0, an hour more, an hour less, in turn.
long jump() {
  if (!jumping.load()) return 0;
  constexpr long kJumps[] = {3'600, 0, -3'600};
  return kJumps[static_cast<unsigned>(asked.fetch_add(1)) % 3];
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long failed = ::syscall(SYS_clock_gettime, clock, now);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
  return static_cast<int>(failed);
}

extern "C" int gettimeofday(timeval* now, void*) noexcept {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  *now = {precise.tv_sec, precise.tv_nsec / 1'000};
  return 0;
}

extern "C" time_t time(time_t* now) noexcept {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}

namespace rondo::testing {

TEST_CASE(
    "fault 65: a wall clock that jumps an hour at every look times nothing out, and lets what must time out do so") {
  for (const char* transport : {"tcp", "auto"}) {
    CAPTURE(transport);
    Config config = fault_config();
    config.transport = transport;
    config.heartbeat_ms = 100;
    config.suspicion_ms = 1'000;
    Job job;
    job.start(
        3,
        [](Here& here) {
          jumping.store(true);
          if (std::chrono::system_clock::now() == std::chrono::system_clock::now()) here.say("the clock stands still");
          Communicator group = Communicator::join(here.options);
          std::vector<float> values(1 << 18, 1);
          const auto start = std::chrono::steady_clock::now();
          here.say(outcome([&] {
            while (true) {
              group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32, Op::kMax);
              group.barrier();
              values[0] = ms_since(start) < 1'500 ? 1 : 2;  // all stop after the same call
              group.all_reduce(values.data(), values.data(), 1, DType::kFloat32, Op::kMax);
              if (values[0] == 2) break;
            }
          }));
          const Timed late = timed_line(here.timed([&] {
            if (here.rank() == 0) {
              eventually([&] { return group.error().has_value(); });
              throw Exception(*group.error());
            }
            group.barrier({.timeout = std::chrono::milliseconds(500)});
          }));
          here.say(late.begins("TIMEOUT [0]") && late.elapsed_ms < 2'000 ? "timed out" : late.outcome);
          here.say(outcome([&] { group.destroy(); }));
        },
        config);
    for (const char* line : {"ok", "timed out", "ok"}) job.expect_all(line);
  }
}

}  // namespace rondo::testing
