// A thread that waits in a stream's place for a GPU's round trip does not sleep: its wake-up takes ten round trips. The
// numbers of calls, which it looks for, wrap around.
#include "ring/engine/device/host_wait.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "ring/engine/device/rank_board.h"

namespace rondo::testing {
namespace {

constexpr int kRounds = 100;

// How often this thread has slept since.
class Sleeps {
 public:
  Sleeps() : before_(so_far()) {}
  long count() const { return so_far() - before_; }

 private:
  static long so_far() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  }
  const long before_;
};

}  // namespace

TEST_CASE("waits of 30 us do not sleep") {
  using Clock = std::chrono::steady_clock;
  int looks = 0;
  const Sleeps sleeps;
  for (int round = 0; round < kRounds; ++round) {
    const auto until = Clock::now() + std::chrono::microseconds(30);
    wait_on_host([&] { return Clock::now() >= until; }, [&] { ++looks; });
  }
  CHECK(sleeps.count() < kRounds / 4);
  CHECK(looks < kRounds / 4);  // where a process took the core for a while
}

// Not by the clock: on a busy machine what a thread yields the core to may keep it for longer than the wait.
TEST_CASE("waits that go on sleep between their looks") {
  const Sleeps sleeps;
  for (int round = 0; round < kRounds; ++round) {
    int looks = 0;
    wait_on_host([&] { return looks == 2; }, [&] { ++looks; });
  }
  CHECK(sleeps.count() >= kRounds);
}

// 0 is the number of kernels of graphs, which do not say that they have begun, or passed.
TEST_CASE("numbers of calls grow over 2^32, and none is 0") {
  uint32_t number = 0xfffffffd;
  for (int i = 0; i < 5; ++i) {
    const uint32_t next = number_behind(number);
    CHECK(next != 0);
    CHECK(static_cast<int32_t>(next - number) > 0);
    number = next;
  }
  CHECK(number == 3);
}

}  // namespace rondo::testing
