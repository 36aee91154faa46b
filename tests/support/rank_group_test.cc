#include "tests/support/rank_group.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <stdexcept>

namespace rondo::testing {

TEST_CASE("a rank that throws, dies or hangs is reported, and the run ends") {
  // Proves: no failure of a rank is lost, so that an empty report means success.
  RankGroup group;
  const std::string thrown = run_processes(group, [](Communicator& ranks) {
    expect(ranks.rank() != 1, "one is wrong");
    ranks.barrier();
  });
  CHECK(thrown.find("rank 1: one is wrong\n") != std::string::npos);
  CHECK(thrown.find("rank 0: ABORTED: ") != std::string::npos);

  const std::string died = run_processes(group, [](Communicator& ranks) {
    if (ranks.rank() == 1) ::raise(SIGKILL);
    ranks.barrier();
  });
  CHECK(died.find("rank 1 died of signal 9\n") != std::string::npos);
  CHECK(died.find("rank 0: PEER_LOST: ") != std::string::npos);

  const std::string hung = run_bare_processes(1, std::chrono::seconds(1), [](int) { ::pause(); });
  CHECK(hung == "rank 0 did not end before the deadline\n");

  const std::string thread = run_threads(group, [](Communicator& ranks) { expect(ranks.rank() != 0, "zero"); });
  CHECK(thread == "rank 0: zero\n");
}

TEST_CASE("ranks that do as they should report nothing") {
  const RankBody body = [](Communicator& ranks) {
    expect(ranks.size() == 3, "size");
    ranks.barrier();
  };
  RankGroup group;
  group.world = 3;
  CHECK(run_processes(group, body) == "");
  CHECK(run_threads(group, body) == "");
}

}  // namespace rondo::testing
