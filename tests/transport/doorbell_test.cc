#include "transport/doorbell.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"
#include "ring/base/file_text.h"
#include "tests/support/eventually.h"
#include "tests/support/resources.h"
#include "transport/armed_sleep.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

struct Pair {
  Pair() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    here = Descriptor(ends[0]);
    there = Descriptor(ends[1]);
  }
  void send() const { REQUIRE(::send(there.get(), "x", 1, 0) == 1); }
  Descriptor here, there;
};

// Whether what the doorbell watches would wake a sleeper now.
bool wakes(const Doorbell& bell) {
  pollfd entry{bell.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

// A new descriptor is writable: that is an event, too.
void take_events(Doorbell& bell) {
  bell.take_events();
  CHECK(!wakes(bell));
}

std::shared_ptr<Sleepers> made() { return std::make_shared<Sleepers>(); }

// Whether the sleep ends by a ring, and not by its deadline of `ms`.
bool rung_within(Sleep& sleep, int ms) {
  const auto begin = Clock::now();
  CHECK(sleep.wait({}, begin + std::chrono::milliseconds(ms)).ok());
  return Clock::now() - begin < std::chrono::milliseconds(ms);
}

}  // namespace

TEST_CASE("a watched descriptor wakes, and no more once it is let go") {
  Doorbell bell(made());
  const Pair pair;
  auto watched = bell.watch(pair.here.get());
  take_events(bell);
  pair.send();
  CHECK(wakes(bell));
  watched.reset();
  CHECK(!wakes(bell));
}

TEST_CASE("after relax() nothing is watched; arm() watches again, what came before included") {
  const auto sleepers = made();
  Doorbell bell(sleepers);
  const Pair pair;
  const auto watched = bell.watch(pair.here.get());
  take_events(bell);
  bell.relax();
  pair.send();
  CHECK(!wakes(bell));
  ArmedSleep sleep(bell, *sleepers);
  CHECK(wakes(bell));
  const auto begin = Clock::now();
  CHECK(sleep.wait(begin + std::chrono::seconds(20)).ok());
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("after relax() and arm() a sleeper is woken by what comes later") {
  const auto sleepers = made();
  Doorbell bell(sleepers);
  const Pair pair;
  const auto watched = bell.watch(pair.here.get());
  bell.relax();
  ArmedSleep sleep(bell, *sleepers);
  take_events(bell);
  const std::string waits = "/proc/self/task/" + std::to_string(::gettid()) + "/stat";
  std::thread other([&] {
    CHECK(testing::eventually([&] { return file_text(waits).find(") S ") != std::string::npos; }));
    pair.send();
  });
  const auto begin = Clock::now();
  CHECK(sleep.wait(begin + std::chrono::seconds(20)).ok());
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
  other.join();
}

TEST_CASE("who is about to sleep is not relaxed") {
  const auto sleepers = made();
  Doorbell bell(sleepers);
  const Pair pair;
  const auto watched = bell.watch(pair.here.get());
  take_events(bell);
  const ArmedSleep sleep(bell, *sleepers);
  bell.relax();
  pair.send();
  CHECK(wakes(bell));
}

TEST_CASE("what was watched while relaxed is watched from the next arm() on") {
  const auto sleepers = made();
  Doorbell bell(sleepers);
  bell.relax();
  const Pair pair;
  const auto watched = bell.watch(pair.here.get());
  CHECK(!wakes(bell));
  const ArmedSleep sleep(bell, *sleepers);
  CHECK(wakes(bell));
}

TEST_CASE("what was let go while relaxed does not come back, though its number is another descriptor's now") {
  const auto sleepers = made();
  Doorbell bell(sleepers);
  const Pair pair;
  Pair other;
  auto watched = bell.watch(pair.here.get());
  take_events(bell);
  bell.relax();
  watched.reset();
  REQUIRE(::dup2(other.here.get(), pair.here.get()) == pair.here.get());
  other.send();
  const ArmedSleep sleep(bell, *sleepers);
  CHECK(!wakes(bell));
}

TEST_CASE("one sleeper is woken by every doorbell that it has armed, and by none that another has armed since") {
  const auto sleepers = made();
  Doorbell first(sleepers), second(sleepers);
  for (Doorbell* const rings : {&first, &second}) {
    Sleep sleep(*sleepers);
    first.arm(sleep);
    second.arm(sleep);
    rings->ring();
    CHECK(rung_within(sleep, 10'000));
    rings->ring();  // nobody sleeps on it any more
    CHECK(!rung_within(sleep, 1));
    first.disarm(sleep);
    second.disarm(sleep);
  }
  Sleep sleep(*sleepers), other(*sleepers);
  first.arm(sleep);
  first.arm(other);
  first.disarm(sleep);  // it is the other's
  first.ring();
  CHECK(!rung_within(sleep, 1));
  CHECK(rung_within(other, 10'000));
}

TEST_CASE("doorbells and sleeps in a row take no descriptor; sleepers at a time take two each, once") {
  const auto sleepers = made();
  const size_t before = testing::open_descriptors();
  std::vector<std::unique_ptr<Doorbell>> bells;
  for (int i = 0; i < 100; ++i) {
    bells.push_back(std::make_unique<Doorbell>(sleepers));
    CHECK(ArmedSleep(*bells.back(), *sleepers).wait(Clock::now()).ok());
  }
  CHECK(testing::open_descriptors() == before);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<ArmedSleep>> sleeps;
    for (const auto& bell : bells) sleeps.push_back(std::make_unique<ArmedSleep>(*bell, *sleepers));
    CHECK(testing::open_descriptors() == before + 2 * 99);
  }
}

TEST_CASE("who finds no sleeper naps") {
  // Proves: of more than kMost threads that sleep at a time, and without descriptors, none waits for its deadline.
  const auto sleepers = made();
  std::vector<std::unique_ptr<Sleep>> lent;
  for (uint32_t i = 0; i < SleeperSockets::kMost; ++i) {
    lent.push_back(std::make_unique<Sleep>(*sleepers));
    REQUIRE(lent.back()->number() == i + 1);
  }
  Doorbell bell(sleepers);
  ArmedSleep sleep(bell, *sleepers);
  bell.ring();
  const auto begin = Clock::now();
  CHECK(sleep.wait(begin + std::chrono::seconds(20)).ok());
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
  lent.pop_back();
  Sleep again(*sleepers);
  CHECK(again.number() == SleeperSockets::kMost);
}

TEST_CASE("a ring that comes before the sleeper is known is made up for") {
  const auto sleepers = made();
  std::vector<std::pair<uint32_t, int>> announced;
  sleepers->announce_to([&](uint32_t number, int socket) { announced.emplace_back(number, socket); });
  REQUIRE(announced.size() == 1);  // that is there
  std::atomic<uint32_t> flag{0};
  const auto known = std::make_shared<SleeperSockets>();  // as another process knows them
  Bell bell;
  bell.connect(&flag, known, nullptr);
  Sleep sleep(*sleepers);
  while (rung_within(sleep, 1)) {  // it was rung when it was made
  }
  flag.store(sleep.number());
  bell.ring();
  CHECK(flag.load() == 0);
  CHECK(!rung_within(sleep, 1));
  CHECK(known->add(announced[0].first, Descriptor(::dup(announced[0].second))));
  CHECK(rung_within(sleep, 10'000));
  CHECK(!known->add(announced[0].first, Descriptor(::dup(announced[0].second))));
}

TEST_CASE("a sleeper whose descriptors somebody has closed says so, and is not lent again") {
  const auto sleepers = made();
  Pair pair;
  uint32_t first = 0;
  {
    Sleep sleep(*sleepers);
    first = sleep.number();
    const int number = pair.there.get();
    pair.there.reset();
    const int watched[] = {number};
    CHECK(sleep.wait(watched, Clock::now() + std::chrono::seconds(20)).code == ErrorCode::kSystem);
  }
  CHECK(Sleep(*sleepers).number() != first);
}

TEST_CASE("a watch may outlive its doorbell") {
  const Pair pair;
  std::shared_ptr<void> watched;
  {
    Doorbell bell(made());
    watched = bell.watch(pair.here.get());
  }
  watched.reset();
}

}  // namespace rondo
