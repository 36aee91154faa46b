// Memory that devices do not share, and kernels that cannot wait for one another, or do not meet: calls are staged, on
// all ranks, and all say why in the same words, which name the rank and what to change.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "tests/device/device_cases.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {
namespace {

constexpr const char* kStaged = "calls on device memory are staged through host memory: ";

constexpr const char* kDoNotMeet = "kernels of the ranks do not meet";

// What the ranks warn of, who call on device memory: without "rondo[rank]: ".
std::multiset<std::string> warnings(Check check, RankGroup ranks) {
  ranks.config.debug = "warn";
  const TempFolder folder;
  const int file = open(folder.path("log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const int saved = dup(STDERR_FILENO);
  dup2(file, STDERR_FILENO);
  check({ranks}, [](Communicator& group) {
    run_on_device(group, all_shapes({group.size(), {1237}, {1}}), BufferKind::kPlain, Taken::kStaged);
  });
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(file);
  std::multiset<std::string> found;
  std::ifstream lines(folder.path("log"));
  for (std::string line; std::getline(lines, line);) {
    // Ranks that have waited for one that is late say so, too.
    if (line.find(kStaged) != std::string::npos) found.insert(line.substr(line.find(": ") + 2));
  }
  return found;
}

// All ranks warn in the same words, which begin with `why` and have `remedy`.
void expect_staged(Check check, const RankGroup& ranks, const std::string& why, const std::string& remedy) {
  const std::multiset<std::string> said = warnings(check, ranks);
  REQUIRE(said.size() == size_t(ranks.world));
  CAPTURE(*said.begin());
  CHECK(said.count(*said.begin()) == said.size());
  CHECK(said.begin()->find(kStaged + why) == 0);
  CHECK(said.begin()->find(remedy) != std::string::npos);
}

// Half of their deadline is for kernels that meet.
RankGroup impatient(RankGroup ranks) {
  ranks.config.timeout_ms = 4'000;
  return ranks;
}

}  // namespace

TEST_CASE("processes: launches that wait, one process at a time, no descriptors, kernels that come too late") {
  if (on_a_gpu()) return;
  expect_staged(check_processes, device_group(3, "shm", {{"CUDA_LAUNCH_BLOCKING", "1", 1}}), "rank 1 ",
                "CUDA_LAUNCH_BLOCKING set");
  expect_staged(check_processes, device_group(2, "shm", {{"FAKE_CUDA_MPS", "0", 1}, {"FAKE_CUDA_COUNT", "1"}}),
                "rank 0 ", "start an MPS daemon");
  expect_staged(check_processes, device_group(3, "shm", {{"FAKE_CUDA_SHARES", "0", 1}}), "rank 1 ",
                "no file descriptors");
  const Settings late{{"FAKE_CUDA_LATE_US", "2500000", 1}, {"CUDA_DEVICE_MAX_CONNECTIONS", "1", 0}};
  expect_staged(check_processes, impatient(device_group(2, "shm", late)), kDoNotMeet,
                "the 1 queue of CUDA_DEVICE_MAX_CONNECTIONS");
}

TEST_CASE("threads: launches that wait, kernels that the device runs one after the other") {
  if (on_a_gpu()) return;
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  expect_staged(check_threads, device_group(3), "rank 2 ", "CUDA_LAUNCH_BLOCKING set");
  unsetenv("CUDA_LAUNCH_BLOCKING");
  setenv("FAKE_CUDA_KERNELS", "1", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);
  expect_staged(check_threads, impatient(device_group(2)), kDoNotMeet, "the 4 queues of CUDA_DEVICE_MAX_CONNECTIONS");
}

}  // namespace rondo::testing
