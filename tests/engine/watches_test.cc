// Sockets are in the epoll set of a thread that sleeps, and not of one that polls.
#include <dirent.h>
#include <doctest/doctest.h>
#include <sys/epoll.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// How many descriptors this process's doorbells watch. Nobody else asks for EPOLLRDHUP (Asio's reactor does not).
int watched() {
  int count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc/self/fdinfo"), closedir);
  expect(all != nullptr, "no /proc/self/fdinfo");
  while (const dirent* entry = readdir(all.get())) {
    std::ifstream info(std::string("/proc/self/fdinfo/") + entry->d_name);
    for (std::string word; info >> word;) {
      if (word != "events:") continue;
      info >> word;
      count += (std::stoull(word, nullptr, 16) & EPOLLRDHUP) != 0;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("watches: ranks that poll for long have no socket in their epoll sets, and one that sleeps has") {
  RankGroup group = ranks_over("tcp");
  group.config.spin_us = 200'000;
  const std::string failed = run_processes(group, [](Communicator& communicator) {
    float value = 1;
    const auto add = [&](int times) {
      for (int i = 0; i < times; ++i) {
        value = 1;
        communicator.all_reduce(&value, &value, 1, DType::kFloat32);
        expect(value == static_cast<float>(communicator.size()), "a wrong sum");
      }
    };
    add(10);
    expect(watched() > 0, "nothing is watched at first");
    // More than one try: a machine that stops a process for longer than the others poll makes them sleep.
    bool all_let_go = false;
    for (int tries = 0; tries < 10 && !all_let_go; ++tries) {
      add(600);
      int any = watched() > 0 ? 1 : 0;
      communicator.all_reduce(&any, &any, 1, DType::kInt32, Op::kMax);
      all_let_go = any == 0;
    }
    expect(all_let_go, "a socket is watched by a rank that has not slept for long");
    for (int i = 0; i < 3; ++i) {
      // The others sleep meanwhile, and are woken by what comes.
      if (communicator.rank() == i % communicator.size()) std::this_thread::sleep_for(std::chrono::seconds(1));
      add(1);
      if (communicator.rank() != i % communicator.size()) expect(watched() > 0, "nothing is watched after a sleep");
    }
    add(10);
  });
  CHECK(failed == "");
}

}  // namespace rondo::testing
