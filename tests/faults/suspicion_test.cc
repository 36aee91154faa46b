// The default settings of heartbeats, in a binary of its own: 10 s.
#include <doctest/doctest.h>
#include <signal.h>

#include <string>

#include "tests/faults/ranks.h"

namespace rondo::testing {

TEST_CASE("fault 12: SIGSTOP for ever, with the default settings: UNRESPONSIVE on all other ranks within 11 s") {
  Job job;
  job.start(3, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say("ready");
    here.await();
    here.say(outcome([&] { group.barrier(); }));
  });
  job.expect_all("ready");
  job[1].signal(SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  job.tell_all("go");
  for (const int rank : {0, 2}) {
    const std::string said = job[rank].hear(20'000);
    const int64_t took = ms_since(stopped);
    CAPTURE(said);
    CHECK(said.find("UNRESPONSIVE [1] rank 1 (host ") == 0);
    CHECK(took >= 8'500);  // the last sign of life came up to a heartbeat before
    check_within(12, took, 11'000);
  }
}

}  // namespace rondo::testing
