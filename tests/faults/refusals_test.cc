// What the system refuses to a rank: it says so at once, with the cause, and the others do not wait for it.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/ranks.h"
#include "tests/support/refuse.h"
#include "transport/rendezvous/launch.h"

namespace rondo::testing {
namespace {

// Far below the start's deadline. A rank that dies without a word is found out by its listener, which takes 1.7 s.
constexpr int64_t kAtOnceMs = 7'000;
constexpr int64_t kPatientMs = 30'000;

Config start_config(const char* transport, int64_t start_timeout_ms) {
  Config config = fault_config(transport);
  config.start_timeout_ms = start_timeout_ms;
  return config;
}

void join_and_use(Here& here) {
  here.say(here.timed([&] {
    Communicator group = Communicator::join(here.options);
    std::vector<float> values(50'000, 1);
    group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32);
    if (here.rank() == 0) group.send(values.data(), 1, DType::kFloat32, 1);
    if (here.rank() == 1) group.recv(values.data(), 1, DType::kFloat32, 0);
  }));
  here.await();
}

struct Outcomes {
  Timed refused, other;
};

// Two ranks, one of which is restricted before it joins; kHasMet: once it has reached the store.
enum class When : uint8_t { kFirst, kHasMet };
Outcomes run(int rank, const char* transport, int64_t start_timeout_ms, const std::function<void()>& restrict_it,
             When when = When::kFirst) {
  Job job;
  job.start(
      2,
      [&](Here& here) {
        if (when == When::kHasMet) {
          const JoinOptions& join = here.options;
          const Launch launch = find_launch({join.rank, join.world, join.rendezvous, join.job_id}, join.config);
          const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatientMs);
          here.options.store = open_store(launch, join.config, deadline);
        }
        if (here.rank() == rank) restrict_it();
        join_and_use(here);
      },
      start_config(transport, start_timeout_ms));
  return {timed_line(job[rank].hear()), timed_line(job[1 - rank].hear())};
}

void limit(decltype(RLIMIT_NOFILE) resource, rlim_t value) {
  const rlimit both{value, value};
  ::setrlimit(resource, &both);
}

}  // namespace

TEST_CASE("a system call that is refused to a rank is SYSTEM there at once, and known to the other") {
  struct Case {
    const char* name;
    int call;
    int rank;
    const char* others;  // what the other rank's outcome begins with
    When when = When::kFirst;
  };
  const char* const told = "BOOTSTRAP [1] rank 1 cannot start: ";
  const std::vector<Case> cases{
      {"epoll_create1", SYS_epoll_create1, 1, told},
      {"epoll_ctl", SYS_epoll_ctl, 1, told},
      {"eventfd", SYS_eventfd2, 1, told},
      {"socketpair", SYS_socketpair, 1, told},
      {"bind", SYS_bind, 1, told},
      {"listen", SYS_listen, 1, told},
      {"eventfd of rank 0", SYS_eventfd2, 0, "BOOTSTRAP [0] rank 0 cannot start: "},
      {"connect", SYS_connect, 1, "PEER_LOST [1]", When::kHasMet},
      {"getsockopt", SYS_getsockopt, 1, "PEER_LOST [1]", When::kHasMet},
      {"accept4", SYS_accept4, 0, "PEER_LOST [0]", When::kHasMet},
      {"accept4 of data", SYS_accept4, 1, "SYSTEM [1]"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.name);
    const Outcomes found = run(
        one.rank, "tcp", kPatientMs, [&] { refuse(one.call); }, one.when);
    CAPTURE(found.refused.outcome);
    CAPTURE(found.other.outcome);
    CHECK(found.refused.begins("SYSTEM"));
    CHECK(found.refused.has("Operation not permitted"));
    CHECK(found.refused.has("seccomp"));
    CHECK(found.other.begins(one.others));
    CHECK(found.refused.elapsed_ms < kAtOnceMs);
    CHECK(found.other.elapsed_ms < kAtOnceMs);
  }
}

TEST_CASE("a rank that may not connect says so at once, and the other names it at the deadline") {
  for (const int call : {SYS_connect, SYS_getsockopt}) {
    CAPTURE(call);
    const Outcomes found = run(1, "tcp", 2'000, [call] { refuse(call); });
    CAPTURE(found.refused.outcome);
    CAPTURE(found.other.outcome);
    CHECK(found.refused.begins("SYSTEM"));
    CHECK(found.refused.has("seccomp"));
    CHECK(found.refused.elapsed_ms < 1'000);
    CHECK(found.other.begins("BOOTSTRAP [1] of 2 ranks these have not come: 1"));
    CHECK(found.other.elapsed_ms < kAtOnceMs);
  }
}

TEST_CASE("a rank with 8 descriptors says so at once, and to the other") {
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const Outcomes found = run(rank, "auto", kPatientMs, [] { limit(RLIMIT_NOFILE, 8); });
    CAPTURE(found.refused.outcome);
    CAPTURE(found.other.outcome);
    CHECK(found.refused.begins("SYSTEM"));
    CHECK(found.refused.has("ulimit -n"));
    CHECK(found.other.has(" cannot start: "));
    CHECK(found.other.has("ulimit -n"));
    CHECK(found.other.elapsed_ms < kAtOnceMs);
  }
}

TEST_CASE("a limit on the size of files is an error or a way by TCP, and no signal") {
  for (const rlim_t bytes : {rlim_t{16'384}, rlim_t{65'536}}) {
    CAPTURE(bytes);
    const Outcomes found = run(1, "auto", kPatientMs, [bytes] { limit(RLIMIT_FSIZE, bytes); });
    CAPTURE(found.other.outcome);
    if (found.refused.outcome != "ok") {
      CHECK(found.refused.begins("SYSTEM"));
      CHECK(found.refused.has("ulimit -f"));
    }
    CHECK((found.other.outcome == "ok") == (found.refused.outcome == "ok"));
    CHECK(found.other.elapsed_ms < kAtOnceMs);
  }
}

TEST_CASE("a rank whose descriptors are closed under it fails, and can leave") {
  for (const char* transport : {"tcp", "auto"}) {
    CAPTURE(transport);
    Job job;
    job.start(
        2,
        [](Here& here) {
          Communicator group = Communicator::join(here.options);
          std::vector<float> values(50'000, 1);
          const auto sum = [&] { group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32); };
          sum();
          if (here.rank() == 1) {
            // Daemons and test harnesses do the same; the program keeps what it talks to the test by. Not by close(),
            // in which the thread sanitizer sees the race that this is.
            for (int number = 3; number < 1024; ++number) {
              if (!here.talks_by(number)) ::syscall(SYS_close, number);
            }
          }
          here.say(here.timed([&] {
            while (true) sum();
          }));
          here.say(here.timed([&] { group = Communicator(); }));
        },
        start_config(transport, kPatientMs));
    const Timed closed = timed_line(job[1].hear()), other = timed_line(job[0].hear());
    CAPTURE(closed.outcome);
    CHECK(closed.begins("SYSTEM [1]"));
    CHECK(closed.has("another part of this process has closed the descriptor"));
    CHECK(closed.elapsed_ms < kAtOnceMs);
    CHECK(other.elapsed_ms < kAtOnceMs);
    for (const int rank : {0, 1}) {
      const Timed left = timed_line(job[rank].hear());
      CHECK(left.outcome == "ok");
      CHECK(left.elapsed_ms < kAtOnceMs);
      CHECK(job[rank].wait() == 0);
    }
  }
}

TEST_CASE("a process whose main thread has ended can be a rank") {
  Job job;
  job.start(2, [](Here& here) {
    if (here.rank() == 0) return join_and_use(here);
    std::thread([&here] {
      join_and_use(here);
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);  // of this thread alone
  });
  for (const int rank : {0, 1}) CHECK(timed_line(job[rank].hear()).outcome == "ok");
}

}  // namespace rondo::testing
