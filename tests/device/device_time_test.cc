// Calls take no longer, on the virtual time of the fake driver, than their round trips: one too many is seen. What
// parts take is assumed (fake.h), and devices do not run here: all figures are modelled.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/device/device_cases.h"

namespace rondo::testing {
namespace {

constexpr int kCalls = 10;
constexpr size_t kMebibyte = 1u << 20;

uint64_t now_ns() { return counted<uint64_t>("fake_cuda_now"); }

// Nanoseconds of an all_reduce on registered memory, for which the host waits.
uint64_t time_of_call(Communicator& group, size_t bytes) {
  Sum sum(group, group.allocate(2 * kMebibyte, Memory::kDevice), bytes / sizeof(int32_t), 2 * kMebibyte);
  uint64_t since = 0;
  for (int i = 0; i <= kCalls; ++i) {
    sum.start().wait();
    sum.mirror.synchronize();
    if (i == 0) since = now_ns();
  }
  return (now_ns() - since) / kCalls;
}

struct Case {
  const char* who;
  Check check;
  int world;
  bool one_device;  // of all ranks; else one a rank
  size_t bytes;
  uint64_t least_ns, most_ns;
  bool staged = false;
};
// Processes first: a program whose ranks were threads forks none.
constexpr Case kCases[] = {
    // Functions of the host in the stream are counted.
    {"2 processes, staged", check_processes, 2, true, 8, 24'000, 48'000, true},
    {"8 processes on 8 devices", check_processes, 8, false, 8, 7'000, 8'000},
    {"8 processes on 8 devices", check_processes, 8, false, kMebibyte, 12'000, 40'000},
    {"8 threads on 8 devices", check_threads, 8, false, 8, 7'000, 8'000},
    {"8 threads on 8 devices", check_threads, 8, false, kMebibyte, 12'000, 40'000},
    // Five to six launches of 2.7 us, by what the threads' turns let run side by side; an exchange more is a seventh.
    {"4 threads on one device", check_threads, 4, true, 8, 12'000, 17'000}};

}  // namespace

TEST_CASE("calls are within their bars, modelled") {
  if (on_a_gpu()) return;  // a GPU takes its time
  setenv("FAKE_CUDA_COUNT", "8", 1);
  for (const Case& what : kCases) {
    what.check({what.staged ? staged_group(what.world) : device_group(what.world)}, [&](Communicator& group) {
      DeviceDriver::open(device_library())->use(what.one_device ? 0 : group.rank());
      const uint64_t taken = time_of_call(group, what.bytes);
      const std::string text = std::string(what.who) + ", all_reduce of " + std::to_string(what.bytes) +
                               " bytes, modelled: " + std::to_string(taken) + " ns";
      if (group.rank() == 0) std::fprintf(stderr, "%s\n", text.c_str());
      expect(taken >= what.least_ns && taken <= what.most_ns, text);
    });
  }
}

}  // namespace rondo::testing
