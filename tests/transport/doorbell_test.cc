#include "transport/doorbell.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "ring/base/descriptor.h"

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

// Whether the doorbell would wake a sleeper now.
bool wakes(const Doorbell& bell) {
  pollfd entry{bell.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

// A new descriptor is writable: that is an event, too.
void take_events(Doorbell& bell) {
  bell.drain();
  CHECK(!wakes(bell));
}

}  // namespace

TEST_CASE("a watched descriptor wakes, and no more once it is let go") {
  Doorbell bell;
  const Pair pair;
  auto watched = bell.watch(pair.here.get());
  take_events(bell);
  pair.send();
  CHECK(wakes(bell));
  watched.reset();
  CHECK(!wakes(bell));
}

TEST_CASE("after relax() nothing is watched; arm() watches again, what came before included") {
  Doorbell bell;
  const Pair pair;
  const auto watched = bell.watch(pair.here.get());
  take_events(bell);
  bell.relax();
  pair.send();
  CHECK(!wakes(bell));
  bell.arm();
  CHECK(wakes(bell));
  const auto begin = Clock::now();
  CHECK(bell.wait(begin + std::chrono::seconds(20)).ok());
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("after relax() and arm() a sleeper is woken by what comes later") {
  Doorbell bell;
  const Pair pair;
  const auto watched = bell.watch(pair.here.get());
  bell.relax();
  bell.arm();
  take_events(bell);
  bell.arm();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pair.send();
  });
  const auto begin = Clock::now();
  CHECK(bell.wait(begin + std::chrono::seconds(20)).ok());
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
  other.join();
}

TEST_CASE("who is about to sleep is not relaxed") {
  Doorbell bell;
  const Pair pair;
  const auto watched = bell.watch(pair.here.get());
  take_events(bell);
  bell.arm();
  bell.relax();
  pair.send();
  CHECK(wakes(bell));
}

TEST_CASE("what was watched while relaxed is watched from the next arm() on") {
  Doorbell bell;
  bell.relax();
  const Pair pair;
  const auto watched = bell.watch(pair.here.get());
  CHECK(!wakes(bell));
  bell.arm();
  CHECK(wakes(bell));
}

TEST_CASE("what was let go while relaxed does not come back, though its number is another descriptor's now") {
  Doorbell bell;
  const Pair pair;
  Pair other;
  auto watched = bell.watch(pair.here.get());
  take_events(bell);
  bell.relax();
  watched.reset();
  REQUIRE(::dup2(other.here.get(), pair.here.get()) == pair.here.get());
  other.send();
  bell.arm();
  CHECK(!wakes(bell));
}

TEST_CASE("a watch may outlive its doorbell") {
  const Pair pair;
  std::shared_ptr<void> watched;
  {
    Doorbell bell;
    watched = bell.watch(pair.here.get());
  }
  watched.reset();
}

}  // namespace rondo
