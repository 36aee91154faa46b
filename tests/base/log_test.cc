#include "ring/base/log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "rondo/log.h"
#include "tests/support/child.h"

namespace rondo {
namespace {

// What `body` writes to standard error.
template <typename Body>
std::string captured(Body&& body) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(ends[1]);
  char buffer[4096];
  ssize_t n = read(ends[0], buffer, sizeof buffer);
  close(ends[0]);
  return std::string(buffer, n > 0 ? n : 0);
}

TEST_CASE("log: a line carries the rank, and only levels that were asked for appear") {
  CHECK(captured([] { Logger("warn", 3).warn("a"); }) == "rondo[3]: a\n");
  CHECK(captured([] { Logger("warn").warn("a"); }) == "rondo: a\n");
  CHECK(captured([] { Logger("warn", 3).info("a"); }) == "");
  CHECK(captured([] { Logger("off", 3).warn("a"); }) == "");
  CHECK(captured([] { Logger("info", 0).info("a"); }) == "rondo[0]: a\n");
  CHECK(captured([] { Logger("trace", 0).trace("a"); }) == "rondo[0]: a\n");
}

TEST_CASE("log: a stranger's bytes cannot forge a second line or move the cursor") {
  CHECK(captured([] { Logger("warn", 0).warn("x\nrondo[1]: y\x1b[2J"); }) == "rondo[0]: x?rondo[1]: y?[2J\n");
}

// Proves: SIGPIPE, at its default, does not end a program whose standard error nobody reads, and one that was already
// waiting for the program stays.
TEST_CASE("fault 62: a closed standard error raises no SIGPIPE") {
  CHECK(testing::in_child([] {
          signal(SIGPIPE, SIG_DFL);
          int ends[2];
          if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return 1;
          close(ends[0]);
          close(ends[1]);
          Logger("warn", 0).warn("nobody reads this");
          sigset_t pipe_signal, pending;
          sigemptyset(&pipe_signal);
          sigaddset(&pipe_signal, SIGPIPE);
          sigprocmask(SIG_BLOCK, &pipe_signal, nullptr);
          Logger("warn", 0).warn("nor this");
          sigpending(&pending);
          if (sigismember(&pending, SIGPIPE) == 1) return 2;
          raise(SIGPIPE);  // the program's own
          Logger("warn", 0).warn("nor this");
          sigpending(&pending);
          return sigismember(&pending, SIGPIPE) == 1 ? 0 : 3;
        }) == 0);
}

// Proves: what another thread was doing in the program's function when it forked is nothing to the child.
TEST_CASE("fault 63: a child of fork() logs, though a thread that it has not is logging") {
  struct Scene {
    const pid_t parent = getpid();
    std::atomic<bool> inside{false}, goes_on{false};
  } scene;
  set_log_function(
      [](void* context, int, int, const char*) {
        Scene& here = *static_cast<Scene*>(context);
        if (getpid() != here.parent) return;
        here.inside = true;
        while (!here.goes_on) std::this_thread::yield();
      },
      &scene);
  std::thread logging([] { Logger("warn", 0).warn("of the parent"); });
  while (!scene.inside) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // its end, if it waits
    Logger("warn", 0).warn("of the child");
    set_log_function(nullptr, nullptr);
    _exit(0);
  }
  scene.goes_on = true;
  logging.join();
  set_log_function(nullptr, nullptr);
  REQUIRE(child > 0);
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("rate limit: one event an interval, and the count of those left out") {
  using namespace std::chrono_literals;
  RateLimit limit(10s);
  RateLimit::Clock::time_point start{};
  uint64_t suppressed = 99;
  CHECK(limit.allow(start, &suppressed));
  CHECK(suppressed == 0);
  CHECK_FALSE(limit.allow(start + 1s, &suppressed));
  CHECK_FALSE(limit.allow(start + 9s, &suppressed));
  CHECK(limit.allow(start + 10s, &suppressed));
  CHECK(suppressed == 2);
  CHECK_FALSE(limit.allow(start + 11s, &suppressed));
}

}  // namespace
}  // namespace rondo
