// The threads that Rondo adds to a program leave its signals to its own threads.
#include <dirent.h>
#include <doctest/doctest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// By name, of the threads of this process whose name begins with "rondo-": the signals that all of that name block, bit
// n - 1 for signal n.
std::map<std::string, uint64_t> blocked_signals() {
  std::map<std::string, uint64_t> blocked;
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  expect(tasks != nullptr, "no /proc/self/task");
  while (const dirent* entry = readdir(tasks.get())) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream status(std::string("/proc/self/task/") + entry->d_name + "/status");
    std::string word, name;
    while (status >> word) {
      if (word == "Name:") status >> name;
      if (word != "SigBlk:" || name.rfind("rondo-", 0) != 0) continue;
      status >> word;
      blocked.emplace(name, ~uint64_t{0}).first->second &= std::stoull(word, nullptr, 16);
    }
  }
  return blocked;
}

}  // namespace

TEST_CASE("own threads: of sockets and the progress thread, none takes the program's signals") {
  RankGroup group;
  group.config.lanes = 2;
  group.config.transport = "tcp";
  const std::string failed = run_processes(group, [](Communicator& communicator) {
    std::vector<float> data(1 << 20, 1.0f);
    Call call;
    call.input = call.output = data.data();
    call.count = data.size();
    communicator.start(call).wait();
    communicator.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32);
    const auto threads = blocked_signals();
    for (const char* name : {"rondo-io", "rondo-progress"}) {
      expect(threads.count(name) == 1, std::string("no thread is called ") + name);
    }
    for (const auto& [name, blocked] : threads) {
      for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
        expect((blocked >> (number - 1) & 1) != 0, name + " takes signal " + std::to_string(number));
      }
    }
  });
  CHECK(failed == "");
}

}  // namespace rondo::testing
