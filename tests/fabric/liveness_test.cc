#include "transport/control/liveness.h"

#include <doctest/doctest.h>

namespace rondo {
namespace {

constexpr Liveness::Settings kSettings{1'000, 10'000};

TEST_CASE("liveness: every heartbeat is asked for once, the first at once") {
  Liveness liveness(kSettings);
  CHECK_FALSE(liveness.next_time());
  liveness.watch(500, 1);
  CHECK(*liveness.next_time() == 500);
  CHECK(liveness.tick(500).beat);
  CHECK_FALSE(liveness.tick(1'499).beat);
  CHECK(*liveness.next_time() == 1'500);
  CHECK(liveness.tick(1'500).beat);
}

TEST_CASE("liveness: silence is warned of after two heartbeats and ends after the suspicion, each said once") {
  Liveness liveness(kSettings);
  liveness.watch(0, 1);
  liveness.watch(0, 2);
  for (Liveness::Time now = 0; now < 30'000; now += 100) {
    CAPTURE(now);
    liveness.heard(now, 2);
    const Liveness::Findings found = liveness.tick(now);
    CHECK(found.stopped_ms == 0);
    CHECK(found.back.empty());
    REQUIRE(found.silent.size() == (now == 2'000 ? 1 : 0));
    if (now == 2'000) CHECK(found.silent[0].peer == 1);
    REQUIRE(found.unresponsive.size() == (now == 10'000 ? 1 : 0));
    if (now == 10'000) CHECK(found.unresponsive[0].peer == 1);
  }
  CHECK(liveness.silence(30'000, 1) == 0);  // not watched any more
}

TEST_CASE("liveness: many that fall silent one after the other are warned of together, every 10 s at most") {
  Liveness liveness({1'000, 0});
  for (int peer = 1; peer <= 20; ++peer) liveness.watch(0, peer);
  std::vector<size_t> warnings;
  for (Liveness::Time now = 0; now < 30'000; now += 10) {
    if (now <= 200) liveness.heard(now, static_cast<int>(now / 10));
    const Liveness::Findings found = liveness.tick(now);
    if (!found.silent.empty()) warnings.push_back(found.silent.size());
    REQUIRE(*liveness.next_time() > now);
  }
  CHECK(warnings == std::vector<size_t>{1, 19});
}

TEST_CASE("liveness: one that speaks again is reported with its silence") {
  Liveness liveness(kSettings);
  liveness.watch(0, 1);
  for (Liveness::Time now = 0; now <= 4'000; now += 1'000) static_cast<void>(liveness.tick(now));
  liveness.heard(4'500, 1);
  const Liveness::Findings found = liveness.tick(5'000);
  REQUIRE(found.back.size() == 1);
  CHECK(found.back[0].ms == 4'500);
  CHECK(liveness.tick(6'000).back.empty());
}

TEST_CASE("liveness: a rank that stood still itself, for however long, starts its clocks anew") {
  for (const Liveness::Time stop : {2'001, 9'000, 12'000, 3'600'000}) {
    CAPTURE(stop);
    Liveness liveness(kSettings);
    liveness.watch(0, 1);
    static_cast<void>(liveness.tick(0));
    const Liveness::Findings found = liveness.tick(stop);
    CHECK(found.stopped_ms == stop - 1'000);
    CHECK(found.silent.empty());
    CHECK(found.unresponsive.empty());
    CHECK(liveness.tick(stop + 1'000).unresponsive.empty());
  }
}

TEST_CASE("liveness: a rank whose own beats are late blames the others for that much less") {
  // Proves: on a host where every thread waits its turn all are late alike, and none is dead. A rank that is in time
  // gives up the others by the suspicion.
  for (const Liveness::Time late : {0, 300, 900}) {
    CAPTURE(late);
    Liveness liveness(kSettings);
    liveness.watch(0, 1);
    Liveness::Time now = 0, given_up = 0;
    while (given_up == 0) {
      const Liveness::Findings found = liveness.tick(now);
      CHECK(found.stopped_ms == 0);
      if (!found.unresponsive.empty()) given_up = now;
      now += 1'000 + late;
    }
    // Only the part of each beat that was in time counts.
    CHECK(given_up >= 10'000 / 1'000 * (1'000 + late));
    CHECK(given_up <= 11'000 / 1'000 * (1'000 + late));
  }
}

TEST_CASE("liveness: without a heartbeat nobody is watched; without a suspicion nobody is given up") {
  Liveness off({0, 0});
  off.watch(0, 1);
  CHECK_FALSE(off.next_time());
  Liveness patient({1'000, 0});
  patient.watch(0, 1);
  for (Liveness::Time now = 0; now < 100'000; now += 500) CHECK(patient.tick(now).unresponsive.empty());
}

}  // namespace
}  // namespace rondo
