// The full matrix over the fake driver: every collective, uneven ones too, with every root, in place or not, aligned or
// not, and every dtype with every op; 1 to 8 processes and 1 to 4 threads, in registered memory, in plain and in both,
// and by the ring.
#include <doctest/doctest.h>

#include "tests/device/island_cases.h"

namespace rondo::testing {
namespace {

constexpr int kMostProcesses = 8;
constexpr int kMostThreads = 4;  // more share few cores and one driver's lock: hours

std::vector<CollectiveCase> matrix_of(int world) {
  std::vector<CollectiveCase> cases = all_shapes({world, usual_counts(world, 5000), all_ranks(world)});
  const std::vector<CollectiveCase> reductions = all_reductions(world);
  cases.insert(cases.end(), reductions.begin(), reductions.end());
  return cases;
}

using Run = std::string (*)(const RankGroup&, const RankBody&);

void run_matrix(Run run, BufferKind kind, Algorithm algorithm = Algorithm::kAuto) {
  const int most = run == run_threads ? kMostThreads : kMostProcesses;
  for (int world = 1; world <= most; ++world) {
    const std::vector<CollectiveCase> cases = matrix_of(world);
    CAPTURE(world);
    RankGroup group = device_group(world, "auto");
    group.config.algorithm = algorithm;
    group.deadline = std::chrono::minutes(30);
    CHECK(run(group, [&](Communicator& comm) { run_all(comm, cases, kind); }) == "");
    MESSAGE(world, " ranks: ", cases.size(), " calls");
  }
}

}  // namespace

TEST_CASE("processes, plain") { run_matrix(run_processes, BufferKind::kPlain); }
TEST_CASE("processes, registered") { run_matrix(run_processes, BufferKind::kRegistered); }
TEST_CASE("processes, both") { run_matrix(run_processes, BufferKind::kOddRegistered); }
TEST_CASE("processes, the ring") { run_matrix(run_processes, BufferKind::kPlain, Algorithm::kRing); }
TEST_CASE("threads, the ring") { run_matrix(run_threads, BufferKind::kPlain, Algorithm::kRing); }
TEST_CASE("threads, plain") { run_matrix(run_threads, BufferKind::kPlain); }
TEST_CASE("threads, registered") { run_matrix(run_threads, BufferKind::kRegistered); }
TEST_CASE("threads, both") { run_matrix(run_threads, BufferKind::kOddRegistered); }

}  // namespace rondo::testing
