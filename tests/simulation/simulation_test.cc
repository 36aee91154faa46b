// The whole library in one thread: ranks that start, call, die, shrink, grow and commit over a simulated network and
// clock keep every promise, whatever the seed breaks and when, and though the wall clock jumps. A run that fails is
// printed, and RONDO_SEED repeats it; RONDO_DEBUG=info has the ranks say what they do.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <vector>

#include "tests/simulation/job.h"

namespace rondo::testing::sim {
namespace {

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

constexpr uint64_t kSeeds = 1'000;  // unless RONDO_SEEDS says otherwise

// Whether this shard of the test (bazel's) has this run.
bool is_own(uint64_t run) {
  if (const char* file = std::getenv("TEST_SHARD_STATUS_FILE")) std::ofstream{file};
  return run % number_of("TEST_TOTAL_SHARDS", 1) == number_of("TEST_SHARD_INDEX", 0);
}

// What all runs of a test have been, for a reader who asks what they reach.
struct Sum {
  uint64_t runs = 0, steps = 0;
  int finished = 0, left_out = 0, without_quorum = 0, failed = 0, killed = 0, epochs = 0;
  Time simulated = 0, longest = 0;

  void add(const Report& report) {
    ++runs;
    steps += report.steps;
    finished += report.finished, left_out += report.left_out, without_quorum += report.without_quorum;
    failed += report.failed, killed += report.killed, epochs += report.epochs;
    simulated += report.ended - report.began;
    longest = std::max(longest, report.went_on);
  }
  void print() const {
    fmt::print(
        "{} runs of {} steps and {} s in all, {} epochs; processes: {} finished, {} killed, {} left out, {} without a "
        "quorum, {} failed; from the last fault to the next step of each survivor at most {} ms\n",
        runs, steps, simulated / kSecond, epochs, finished, killed, left_out, without_quorum, failed,
        longest / kMillisecond);
  }
};

Report run(Script script) {
  if (const char* debug = std::getenv("RONDO_DEBUG")) script.config.debug = debug;
  Report report = run_apart(script);
  if (!report.wrong.empty()) FAIL_CHECK(fmt::format("{}\n  {}", report.wrong, script.text()));
  return report;
}

// Ranks of their own hosts, or all on one: deaths are proven by the kernel there.
Script plain(int world, bool one_host, uint64_t seed) {
  Script script = script_of(seed, 1);
  script.faults.clear();
  script.network.lost_percent = 0;
  script.newcomers = 0;
  script.host.assign(static_cast<size_t>(world), 0);
  if (!one_host) std::iota(script.host.begin(), script.host.end(), 0);
  return script;
}

TEST_CASE("fault 3, 7, 16, 65, 72, 76: every seed") {
  const bool one = std::getenv("RONDO_SEED") != nullptr;
  const uint64_t first = number_of("RONDO_SEED", 0), last = one ? first + 1 : number_of("RONDO_SEEDS", kSeeds);
  Sum sum;
  for (uint64_t seed = first; seed < last; ++seed) {
    if (one || is_own(seed)) sum.add(run(script_of(seed, 2'000)));
  }
  sum.print();
}

TEST_CASE("fault 3: every seed, with sub-communicators") {
  Sum sum;
  for (uint64_t seed = 0; seed < number_of("RONDO_SEEDS", kSeeds) / 4; ++seed) {
    if (!is_own(seed) || number_of("RONDO_SEED", seed) != seed) continue;
    Script script = script_of(seed, 2'000);
    script.parts = true;
    sum.add(run(script));
  }
  sum.print();
}

TEST_CASE("the same seed gives the same run") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const Report once = run(script_of(seed, 2'000)), again = run(script_of(seed, 2'000));
    CHECK(once.digest == again.digest);
    CHECK(once.steps == again.steps);
  }
}

// The same run, in which this rank dies at this step.
Script with_crash(Script script, uint64_t step, int victim) {
  script.faults = {{Fault::Kind::kCrash, step, victim, 0, 0}};
  return script;
}

// Proves: a rank that dies at any moment costs the others milliseconds and nothing else, if they are a quorum.
void crash_at_every_step(const Script& sound, bool proven, Sum& sum) {
  const uint64_t stride = number_of("RONDO_STRIDE", 97);
  const int world = static_cast<int>(sound.host.size());
  const Report whole = run(sound);
  CHECK(whole.finished == world);
  for (uint64_t step = 0; step < whole.steps; step += stride) {
    if (!is_own(step / stride)) continue;
    const int victim = static_cast<int>(step / stride) % world;
    const Script script = with_crash(sound, step, victim);
    INFO(script.text());
    const Report report = run(script);
    sum.add(report);
    CHECK(report.ended - report.last_fault < 40 * kSecond);
    const bool quorum = proven || world > 2 || victim == 1;
    if (step <= whole.started || !quorum) continue;
    // Where others have left in good order, nobody can prove to the last one that the victim does not go on.
    const int last_one = !proven && report.finished > 0 ? report.without_quorum : 0;
    CHECK(report.finished + report.killed + last_one == world);
    CHECK(report.went_on < 100 * kMillisecond);
  }
}

TEST_CASE("fault 3, 7: a crash at every step, in worlds of 2 to 4") {
  Sum sum;
  for (int world = 2; world <= 4; ++world) {
    for (const bool one_host : {true, false}) {
      crash_at_every_step(plain(world, one_host, static_cast<uint64_t>(world)), one_host, sum);
    }
  }
  sum.print();
}

// Proves: a connection that a firewall has forgotten, whichever and whenever, ends no call by its own timeout.
TEST_CASE("fault 15: a connection that carries nothing any more, at every step") {
  Sum sum;
  const Script sound = plain(2, false, 2);
  const Report whole = run(sound);
  const uint64_t stride = number_of("RONDO_STRIDE", 3);
  for (uint64_t step = 0; step < whole.steps; step += stride) {
    if (!is_own(step / stride)) continue;
    Script script = sound;
    script.faults = {{Fault::Kind::kForget, step, 0, 1, 0}};
    INFO(script.text());
    const Report report = run(script);
    sum.add(report);
    CHECK(report.ended - report.last_fault < 40 * kSecond);
  }
  sum.print();
}

// Proves: the network's bad moments end no call and no rank.
TEST_CASE("fault 15, 16: outages and stops that are shorter than the suspicion") {
  constexpr Fault::Kind kKinds[] = {Fault::Kind::kStop, Fault::Kind::kOneWay, Fault::Kind::kPartition};
  for (uint64_t seed = 0; seed < number_of("RONDO_SEEDS", kSeeds) / 4; ++seed) {
    if (!is_own(seed) || number_of("RONDO_SEED", seed) != seed) continue;
    Random random(seed);
    const uint64_t world = random.between(2, 4);
    Script script = plain(static_cast<int>(world), false, seed);
    script.config.suspicion_ms = 6'000;
    const uint64_t one = random.below(world), other = (one + 1 + random.below(world - 1)) % world;
    const Time lasts = static_cast<Time>(random.between(10, 2'500)) * kMillisecond;
    script.faults = {
        {kKinds[random.below(3)], random.below(2'000 * world), static_cast<int>(one), static_cast<int>(other), lasts}};
    INFO(script.text());
    const Report report = run(script);
    CHECK(report.finished == static_cast<int>(world));
    CHECK(report.epochs == 1);
  }
}

// Proves: one that stands still, or whose network does, for less than the suspicion while the others shrink or grow
// goes on with them: a member that is asked is left out by nobody that has not waited so long.
TEST_CASE("fault 7, 11, 17: silences that are shorter than the suspicion, in shrink() and grow()") {
  constexpr Fault::Kind kSilences[] = {Fault::Kind::kStop, Fault::Kind::kStop, Fault::Kind::kOneWay,
                                       Fault::Kind::kPartition};
  Sum sum;
  for (uint64_t seed = 0; seed < number_of("RONDO_SEEDS", kSeeds) / 4; ++seed) {
    if (!is_own(seed) || number_of("RONDO_SEED", seed) != seed) continue;
    Random random(seed);
    const uint64_t world = random.between(3, 5);
    Script script = plain(static_cast<int>(world), random.chance(30), seed);
    script.config.suspicion_ms = 6'000;
    const bool grows = random.chance(40);
    if (grows) script.newcomers = static_cast<int>(random.between(1, 2));
    const Report sound = run(script);
    const uint64_t victim = random.below(world), one = (victim + 1 + random.below(world - 1)) % world;
    const uint64_t third = (victim + 1 + random.below(world - 1)) % world;
    const uint64_t first = sound.started + random.below((sound.steps - sound.started) / 2);
    const Fault::Kind kind = kSilences[random.below(std::size(kSilences))];
    const Time lasts = static_cast<Time>(random.between(10, 4'000));
    if (!grows) script.faults = {{Fault::Kind::kCrash, first, static_cast<int>(victim), 0, 0}};
    script.faults.push_back({kind, grows ? random.below(sound.steps) : first + random.below(500 * world),
                             static_cast<int>(one), static_cast<int>(third), lasts * kMillisecond});
    INFO(script.text());
    const Report report = run(script);
    sum.add(report);
    CHECK(report.left_out + report.without_quorum == 0);
    CHECK(report.finished >= static_cast<int>(world) - report.killed);
    if (!grows) CHECK(report.epochs <= 2);
    CHECK(report.went_on < lasts * kMillisecond + 2 * kSecond);
  }
  sum.print();
}

// Proves: the one of two hosts that cannot reach each other which is left out learns so from those that it reaches.
TEST_CASE("fault 16: a rank that is left out hears so within twice the suspicion, however patient it is") {
  Sum sum;
  for (uint64_t seed = 0; seed < number_of("RONDO_SEEDS", kSeeds) / 8; ++seed) {
    if (!is_own(seed) || number_of("RONDO_SEED", seed) != seed) continue;
    Random random(seed);
    const uint64_t world = random.between(3, 6);
    Script script = plain(static_cast<int>(world), false, seed);
    script.patience_ms = 100'000;
    const Report sound = run(script);
    const uint64_t one = random.below(world), other = (one + 1 + random.below(world - 1)) % world;
    const uint64_t step = sound.started + random.below((sound.steps - sound.started) / 2);
    script.faults = {{random.chance(50) ? Fault::Kind::kPartition : Fault::Kind::kOneWay, step, static_cast<int>(one),
                      static_cast<int>(other), 1'000 * kSecond}};
    INFO(script.text());
    const Report report = run(script);
    sum.add(report);
    CHECK(report.finished == static_cast<int>(world) - 1);
    CHECK(report.left_out == 1);
    CHECK(report.ended - report.last_fault < 2 * script.config.suspicion_ms * kMillisecond + 4 * kSecond);
  }
  sum.print();
}

// Proves: a start that waits for a rank survives them as well, also where it looks who is missing (after 10 s).
TEST_CASE("fault 17: an outage at every step of a start with a late rank") {
  Script sound = plain(3, false, 3);
  sound.config.suspicion_ms = 6'000;
  sound.steps = 1;
  sound.late = 11'500 * kMillisecond;
  const Report whole = run(sound);
  CHECK(whole.finished == 3);
  const uint64_t stride = number_of("RONDO_STRIDE", 7);
  for (uint64_t step = 0; step < whole.started; step += stride) {
    if (!is_own(step / stride)) continue;
    Script script = sound;
    script.faults = {{Fault::Kind::kPartition, step, 0, 1, 2'500 * kMillisecond}};
    INFO(script.text());
    CHECK(run(script).finished == 3);
  }
}

// Proves: a rank that is lost while the others wait for one, or meet it, is missed within 2 s, or twice the suspicion:
// an answer to a host that has vanished begins its silence anew.
void loss_at_every_step_of_a_start(Fault::Kind kind, Time longest, Sum& sum) {
  Script sound = plain(4, false, 4);
  sound.config.suspicion_ms = 6'000;
  sound.steps = 1;
  sound.late = 3 * kSecond;
  const Report whole = run(sound);
  CHECK(whole.finished == 4);
  const uint64_t stride = number_of("RONDO_STRIDE", 17);
  for (uint64_t step = 0; step < whole.started; step += stride) {
    if (!is_own(step / stride)) continue;
    Script script = sound;
    script.faults = {{kind, step, static_cast<int>(step / stride) % 3, 0, 0}};
    INFO(script.text());
    const Report report = run(script);
    sum.add(report);
    // One that is lost before it has come is missing, until the deadline; a late one that comes behind it finds nobody.
    if (report.last_fault - report.began >= kSecond) CHECK(report.told < longest);
  }
}

TEST_CASE("fault 2: a crash at every step of a start with a late rank") {
  Sum sum;
  loss_at_every_step_of_a_start(Fault::Kind::kCrash, 2 * kSecond, sum);
  sum.print();
}

TEST_CASE("fault 15: a host that loses power, at every step of a start with a late rank") {
  Sum sum;
  loss_at_every_step_of_a_start(Fault::Kind::kPower, 12 * kSecond, sum);
  sum.print();
}

// Proves: a rank dies during the start, or just after it. The others end with an error that blames this rank alone.
TEST_CASE("fault 2: a crash at every step of a start: only the dead rank is blamed") {
  Sum sum;
  const uint64_t stride = number_of("RONDO_STRIDE", 29);
  constexpr uint64_t kDeath = bit_of(ErrorCode::kPeerLost) | bit_of(ErrorCode::kBootstrap);
  for (int world = 2; world <= 5; ++world) {
    Script sound = plain(world, false, static_cast<uint64_t>(world));
    sound.steps = 1;
    const Report whole = run(sound);
    for (uint64_t step = 0; step < whole.steps; step += stride) {
      if (!is_own(step / stride)) continue;
      const int victim = static_cast<int>(step / stride) % world;
      const Script script = with_crash(sound, step, victim);
      INFO(script.text());
      const Report report = run(script);
      sum.add(report);
      CHECK((report.blamed & ~bit_of(victim)) == 0);
      CHECK((report.codes & ~kDeath) == 0);
      // Rank 0 may be gone before it could serve a store, by which the others would have been known.
      if (report.failed > 0 && victim != 0) CHECK(report.blamed == bit_of(victim));
      // One that is missing is waited for.
      if (report.codes == bit_of(ErrorCode::kPeerLost)) CHECK(report.ended - report.last_fault < 3 * kSecond);
    }
  }
  sum.print();
}

// Proves: a start whose ranks all live, but for a way between two, blames these two on every rank. Rank 0 is none of
// them: at its host all meet.
TEST_CASE("fault 15: two ranks that do not reach each other in a start: NETWORK on every rank, both named") {
  for (uint64_t seed = 0; seed < number_of("RONDO_SEEDS", kSeeds) / 4; ++seed) {
    if (!is_own(seed) || number_of("RONDO_SEED", seed) != seed) continue;
    Random random(seed);
    const uint64_t others = random.between(2, 5);
    const uint64_t one = random.below(others), other = (one + 1 + random.below(others - 1)) % others;
    Script script = plain(static_cast<int>(others) + 1, false, seed);
    script.faults = {{random.chance(50) ? Fault::Kind::kReject : Fault::Kind::kPartition, 0, static_cast<int>(one) + 1,
                      static_cast<int>(other) + 1, 1'000 * kSecond}};
    INFO(script.text());
    const Report report = run(script);
    CHECK(report.failed == static_cast<int>(others) + 1);
    CHECK(report.codes == bit_of(ErrorCode::kNetwork));
    CHECK(report.blamed == (bit_of(one + 1) | bit_of(other + 1)));
    CHECK(!report.blames_differ);
  }
}

// Proves: beyond 64 ranks, where not all are connected and messages are passed on, a third of them may die at once.
TEST_CASE("fault 3: 70 ranks on 70 hosts, of which 23 die at once") {
  if (!is_own(0)) return;
  Script script = plain(70, false, 70);
  script.steps = 3;
  const Report whole = run(script);
  CHECK(whole.finished == 70);
  for (int victim = 1; victim < 70; victim += 3) {
    script.faults.push_back({Fault::Kind::kCrash, (whole.started + whole.steps) / 2, victim, 0, 0});
  }
  const Report report = run(script);
  CHECK(report.finished == 47);
  CHECK(report.went_on < kSecond);
  fmt::print("70 ranks: from 23 deaths to the next step of each survivor at most {} ms\n",
             report.went_on / kMillisecond);
}

// Proves: a cut between two hosts costs one of them; those that hear both go on with the other.
TEST_CASE("fault 16: 72 ranks on 6 hosts, of which two cannot reach each other") {
  if (!is_own(1)) return;
  Script script = plain(72, false, 72);
  for (size_t rank = 0; rank < 72; ++rank) script.host[rank] = static_cast<int>(rank / 12);
  script.steps = 3;
  const Report whole = run(script);
  CHECK(whole.finished == 72);
  script.faults = {{Fault::Kind::kPartition, (whole.started + whole.steps) / 2, 1, 4, 1'000 * kSecond}};
  const Report report = run(script);
  CHECK(report.finished == 60);
  CHECK(report.left_out == 12);
}

}  // namespace
}  // namespace rondo::testing::sim
