// What a rank tells of its calls when another one asks.
#include "ring/engine/call_log.h"

#include <doctest/doctest.h>

#include <chrono>
#include <optional>

namespace rondo::testing {

TEST_CASE("of threads that wait in messages, the one that waits longest is told; the only one names its peer") {
  // Whichever begins and whichever ends first.
  using std::chrono::seconds;
  const auto now = std::chrono::steady_clock::now();
  CallLog log;
  std::optional<CallLog::MessageWait> first, second;
  CHECK_FALSE(log.state(kMessagesSequence).in_p2p);
  first.emplace(log, 3, "recv from 3", now - seconds(20));
  CHECK(log.state(kMessagesSequence).p2p_peer == 3);
  second.emplace(log, 5, "recv from 5", now - seconds(10));
  const CallState both = log.state(kMessagesSequence);
  CHECK((both.in_p2p && both.p2p_peer == -1 && both.since_ms >= 20'000));
  CHECK(both.p2p_text == "recv from 3");
  SUBCASE("the later one ends") {
    second.reset();
    const CallState left = log.state(kMessagesSequence);
    CHECK((left.p2p_peer == 3 && left.since_ms >= 20'000));
    CHECK(log.waits_in() == "recv from 3");
  }
  SUBCASE("the earlier one ends") {
    first.reset();
    const CallState left = log.state(kMessagesSequence);
    CHECK((left.p2p_peer == 5 && left.since_ms < 20'000));
    CHECK(log.waits_in() == "recv from 5");
  }
  first.reset();
  second.reset();
  CHECK_FALSE(log.state(kMessagesSequence).in_p2p);
  CHECK(log.waits_in() == "");
}

}  // namespace rondo::testing
