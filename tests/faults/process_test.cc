// What a process does beside Rondo: it forks, executes programs, takes signals.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr int64_t kSoonMs = 1'500;
constexpr uint64_t kLarge = 4 << 20;

// Sockets among the descriptors of a process.
int sockets_of(pid_t pid) {
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    std::error_code gone;
    sockets += std::filesystem::read_symlink(entry, gone).string().find("socket:") == 0;
  }
  return sockets;
}

}  // namespace

// The thread sanitizer does not support threads in the child of a process that had threads.
#ifndef __SANITIZE_THREAD__
TEST_CASE("fault 63: a fork in mid-operation leaves the parent alone, and the child's calls are invalid") {
  Job job;
  job.start(3, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    std::vector<float> values(kLarge, 1);
    Call call;
    call.input = call.output = values.data();
    call.count = kLarge;
    Work work = group.start(call);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const bool invalid =
          outcome([&] { group.barrier(); }).find("INVALID [] ") == 0 &&
          outcome([&] { group.send(values.data(), 1, DType::kFloat32, 0); }).find("INVALID [] ") == 0 &&
          outcome([&] { group.split(0); }).find("INVALID [] ") == 0 && sockets_of(::getpid()) == 0;
      group.abort("from a child");
      group = Communicator();  // as a child that returns from main() does
      ::_exit(invalid ? 0 : 1);
    }
    work.wait();
    here.say(fmt::format("{} {}", values.front(), values.back()));
    int status = 0;
    ::waitpid(child, &status, 0);
    here.say(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "invalid" : fmt::format("status {:#x}", status));
    here.say(outcome([&] { sum_ones(group, 1000); }));
    group.destroy();
  });
  for (RankProcess& rank : job.ranks) {
    CHECK(rank.hear() == "3 3");
    CHECK(rank.hear() == "invalid");
    CHECK(rank.hear() == "ok");
    CHECK(rank.wait() == 0);
  }
}

TEST_CASE("fault 63: a forked child that has threads of its own lets go of ranks that were threads") {
  std::vector<Communicator> groups = Communicator::inproc(2, fault_config());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::vector<std::thread> own;  // of which one has the number that a thread of the parent's has
    for (int i = 0; i < 4; ++i) own.emplace_back([] { ::pause(); });
    groups.clear();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK_MESSAGE((WIFEXITED(status) && WEXITSTATUS(status) == 0), fmt::format("status {:#x}", status));
  std::string said[2];
  {
    std::vector<std::jthread> ranks;
    for (size_t r = 0; r < 2; ++r)
      ranks.emplace_back([&, r] { said[r] = outcome([&] { sum_ones(groups[r], 1000); }); });
  }
  CHECK(said[0] == "ok");
  CHECK(said[1] == "ok");
}
#endif

TEST_CASE("fault 64: an executed child inherits no socket, and outliving its parent it hides nothing") {
  Job job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    group.barrier();
    if (here.rank() == 1) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::execl("/bin/sleep", "sleep", "6", static_cast<char*>(nullptr));
        ::_exit(127);
      }
      eventually([&] {
        std::error_code gone;
        return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", child), gone) !=
               std::filesystem::read_symlink("/proc/self/exe");
      });
      here.say(fmt::format("{} sockets", sockets_of(child)));
      here.say(fmt::format("{}", child));
    }
    here.say(outcome([&] { group.recv(nullptr, 0, DType::kFloat32, 1 - here.rank()); }));
  });
  CHECK(job[1].hear() == "0 sockets");
  const pid_t child = std::stoi(job[1].hear());
  job[1].signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  CHECK(job[0].hear().find("PEER_LOST [1] ") == 0);
  check_within(64, ms_since(killed), kSoonMs);
  CHECK(::kill(child, 0) == 0);  // it is still there
  ::kill(child, SIGKILL);
}

TEST_CASE("fault 61: a signal every millisecond disturbs neither joining nor any call") {
  static std::atomic<int> signals;
  Job job;
  job.start(3, [&](Here& here) {
    struct sigaction action {};
    action.sa_handler = [](int) { signals.fetch_add(1); };  // no SA_RESTART: calls are interrupted
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval each_ms{{0, 1'000}, {0, 1'000}};
    ::setitimer(ITIMER_REAL, &each_ms, nullptr);
    Communicator group = Communicator::join(here.options);
    for (int i = 0; i < 20; ++i) {
      sum_ones(group, i % 2 == 0 ? 11 : kLarge / 4);
      group.barrier();
      int sent = i, got = -1;
      const int world = group.size();
      group.sendrecv(&sent, 1, (group.rank() + 1) % world, &got, 1, (group.rank() + world - 1) % world, DType::kInt32);
      if (got != i) here.say("wrong message");
      // A pause, so that all sleep in the next call.
      if (i % 5 == here.rank()) eventually([] { return false; }, 30);
    }
    Communicator half = group.split(0);
    half.barrier();
    group.destroy();
    here.say(signals.load() > 50 ? "done" : "too few signals");
  });
  for (RankProcess& rank : job.ranks) CHECK(rank.hear() == "done");
}

TEST_CASE("fault 62: SIGTERM in mid-operation reaches the program's own handler, and the operations go on") {
  static volatile sig_atomic_t terms = 0;
  constexpr int kTerms = 5;
  Job job;
  job.start(3, [&](Here& here) {
    struct sigaction action {};
    action.sa_handler = [](int) { terms = terms + 1; };
    ::sigaction(SIGTERM, &action, nullptr);
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    int32_t said = 0, fewest = 0;
    while (fewest < kTerms) {
      sum_ones(group, kLarge / 4);
      int32_t heard = terms;
      if (heard > said) here.say(fmt::format("heard {}", said = heard));
      group.all_reduce(&heard, &fewest, 1, DType::kInt32, Op::kMin);
    }
    group.destroy();
    here.say("done");
  });
  job.expect_all("ready");
  for (int i = 1; i <= kTerms; ++i) {
    for (const RankProcess& rank : job.ranks) rank.signal(SIGTERM);
    for (RankProcess& rank : job.ranks) REQUIRE(rank.hear() == fmt::format("heard {}", i));
  }
  for (RankProcess& rank : job.ranks) {
    CHECK(rank.hear() == "done");
    CHECK(rank.wait() == 0);
  }
}

TEST_CASE("fault 62: SIGTERM without a handler ends that process as everywhere, and the others are told") {
  Job job;
  job.start(2, [&](Here& here) {
    ::signal(SIGTERM, SIG_DFL);  // the test framework has a handler
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    here.say(outcome([&] {
      while (true) sum_ones(group, kLarge / 4);
    }));
  });
  job.expect_all("ready");
  job[1].signal(SIGTERM);
  const auto asked = std::chrono::steady_clock::now();
  CHECK(job[0].hear().find("PEER_LOST [1] rank 1 (host ") == 0);
  check_within(62, ms_since(asked), kSoonMs);
  CHECK(job[1].wait() == -SIGTERM);
}

}  // namespace rondo::testing
