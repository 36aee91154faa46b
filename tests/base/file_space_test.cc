#include "ring/base/file_space.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "ring/base/descriptor.h"

namespace rondo {
namespace {

// Signals of a timer, far closer together than the kernel takes for the file.
class Timer {
 public:
  Timer() {
    struct sigaction action {};
    action.sa_handler = [](int) { signals = signals + 1; };
    ::sigaction(SIGALRM, &action, &before_);
    const itimerval each_ms{{0, 1'000}, {0, 1'000}};
    ::setitimer(ITIMER_REAL, &each_ms, nullptr);
  }
  Timer(const Timer&) = delete;
  ~Timer() {
    const itimerval none{};
    ::setitimer(ITIMER_REAL, &none, nullptr);
    ::sigaction(SIGALRM, &before_, nullptr);
  }
  static inline volatile sig_atomic_t signals = 0;

 private:
  struct sigaction before_ {};
};

TEST_CASE("fault 61: a file in memory becomes whole while signals come, and they come again afterwards") {
  constexpr uint64_t kBytes = 64 << 20, kBlockBytes = 512;
  const Descriptor file([] { return ::memfd_create("rondo-test", MFD_CLOEXEC); });
  REQUIRE(file.valid());
  const Timer timer;
  CHECK(take_file_space(file.get(), kBytes) == 0);
  struct stat facts {};
  REQUIRE(::fstat(file.get(), &facts) == 0);
  CHECK(facts.st_size == static_cast<off_t>(kBytes));
  CHECK(static_cast<uint64_t>(facts.st_blocks) * kBlockBytes >= kBytes);
  const int before = Timer::signals;
  while (Timer::signals == before) ::pause();
}

TEST_CASE("what the system refuses is its error's number") {
  CHECK(take_file_space(-1, 4096) == EBADF);
  const Descriptor file([] { return ::memfd_create("rondo-test", MFD_CLOEXEC); });
  CHECK(take_file_space(file.get(), 0) == EINVAL);
}

}  // namespace
}  // namespace rondo
