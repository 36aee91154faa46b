// The full matrix over the fake driver: every collective, uneven ones too, with every root, in place or not, aligned or
// not, and every dtype with every op; 1 to 8 processes and threads, in registered memory, in plain and in both, and by
// the ring.
#include <doctest/doctest.h>

#include "tests/device/device_cases.h"

namespace rondo::testing {
namespace {

constexpr int kMostRanks = 8;

void run_matrix(Check check, BufferKind kind, Algorithm algorithm = Algorithm::kAuto) {
  for (int world = 1; world <= kMostRanks; ++world) {
    const std::vector<CollectiveCase> cases = full_matrix(world);
    RankGroup group = device_group(world);
    group.config.algorithm = algorithm;
    group.deadline = std::chrono::minutes(30);
    check({group}, [&](Communicator& comm) { run_on_device(comm, cases, kind); });
    MESSAGE(world, " ranks: ", cases.size(), " calls");
  }
}

}  // namespace

TEST_CASE("processes") {
  for (const BufferKind kind : kKinds) run_matrix(check_processes, kind);
}
TEST_CASE("processes, the ring") { run_matrix(check_processes, BufferKind::kPlain, Algorithm::kRing); }
TEST_CASE("threads, the ring") { run_matrix(check_threads, BufferKind::kPlain, Algorithm::kRing); }
TEST_CASE("threads, plain memory") { run_matrix(check_threads, BufferKind::kPlain); }
TEST_CASE("threads, registered memory") { run_matrix(check_threads, BufferKind::kRegistered); }
TEST_CASE("threads, registered on odd ranks") { run_matrix(check_threads, BufferKind::kOddRegistered); }

}  // namespace rondo::testing
