#include "bench/choice/line_transfer.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "ring/base/cores.h"

namespace rondo::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kTrips = 2000;
constexpr int kTries = 20;

struct Lines {
  alignas(128) std::atomic<uint32_t> there{0};
  alignas(128) std::atomic<uint32_t> back{0};
};

void bind_to(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

// Other work may hold one of the cores: then a wait gives the core away.
void await(const std::atomic<uint32_t>& word, uint32_t value) {
  for (uint32_t spins = 1; word.load(std::memory_order_acquire) != value; ++spins) {
    if (spins % 4096 == 0) sched_yield();
  }
}

double try_once(Lines& lines, uint32_t& number) {
  const auto begin = Clock::now();
  for (uint32_t trip = 0; trip < kTrips; ++trip) {
    lines.there.store(++number, std::memory_order_release);
    await(lines.back, number);
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kTrips / 2;
}

}  // namespace

double line_transfer_ns() {
  const cpu_set_t allowed = allowed_cores();
  if (CPU_COUNT(&allowed) < 2) return 0;
  Lines lines;
  double least = 1e9;
  std::thread other([&] {
    bind_to(home_core(allowed, 1));
    for (uint32_t number = 1; number <= kTrips * kTries; ++number) {
      await(lines.there, number);
      lines.back.store(number, std::memory_order_release);
    }
  });
  std::thread one([&] {
    bind_to(home_core(allowed, 0));
    uint32_t number = 0;
    for (int i = 0; i < kTries; ++i) least = std::min(least, try_once(lines, number));
  });
  one.join();
  other.join();
  return least;
}

}  // namespace rondo::bench
