// The last look before a sleep (transport/doorbell.h): a ringer changes a word, then reads the bell's flag; a sleeper
// arms the bell, reads the word once more, and sleeps. The test runs every interleaving, with the reorderings of x86
// and Arm. With the product's memory orders the sleeper never misses the change; with the order of either the store or
// the load weakened it does. A second test has two threads that each store a word and load the other's: one at least
// sees it.
#include <doctest/doctest.h>

#include <string>

#include "ring/engine/island/post_board.h"
#include "tests/engine/interleavings.h"
#include "transport/island/cell_ring.h"

namespace rondo::testing {
namespace {

struct Orders {
  const char* name;
  std::memory_order change, look;
};
constexpr Orders kBells[] = {
    {"a piece is shown", CellOrders::kPublishLast, CellOrders::kObserve},
    {"room is given back", CellOrders::kFree, CellOrders::kReuse},
    {"a side ends", CellOrders::kEnd, CellOrders::kSeeEnd},
    {"a rank arrives", BoardOrders::kArrive, BoardOrders::kSeeArrival},
};
constexpr Orders kMutual[] = {
    {"each shows a piece and looks for the other's", CellOrders::kPublishLast, CellOrders::kObserve},
    {"accesses and closing", BoardOrders::kEnter, BoardOrders::kSeeAccess},
    {"closing and accesses", BoardOrders::kClose, BoardOrders::kEnter},
};

// changes: how often the word changes; the sleeper waits for the last.
std::string look_before_sleep(const Orders& orders, uint8_t changes) {
  Interleavings all;
  the_interleavings = &all;
  ModelAtomic<uint8_t> word{0, "the word"}, armed{0, "the armed bell"};
  ModelAtomic<bool> rung{false, "the sleeper's socket"}, seen{false, "what the sleeper has seen"};
  all.add_thread("the ringer", [&](auto& local) {
    word.store(++local[0], orders.change);
    if (armed.load() != 0 && armed.exchange(0) != 0) rung.store(true);
    return local[0] < changes;
  });
  all.add_thread("the sleeper", [&](auto&) {
    if (word.load(orders.look) < changes) {
      armed.store(1);
      if (word.load(orders.look) < changes) rung.await();
      uint8_t own = 1;
      armed.compare_exchange_strong(own, 0);
      return true;
    }
    seen.store(true);
    return false;
  });
  return all.run([&] { return std::string(seen.value() ? "" : "the sleeper sleeps though the word has changed"); });
}

// Two threads, each of which stores its word and then loads the other's.
std::string see_each_other(const Orders& orders) {
  Interleavings all;
  the_interleavings = &all;
  ModelAtomic<uint8_t> words[] = {ModelAtomic<uint8_t>{0, "the word of 0"}, ModelAtomic<uint8_t>{0, "the word of 1"}};
  ModelAtomic<uint8_t> seen[] = {ModelAtomic<uint8_t>{0, "seen by 0"}, ModelAtomic<uint8_t>{0, "seen by 1"}};
  for (const size_t self : {0u, 1u}) {
    all.add_thread(std::to_string(self), [&, self](auto&) {
      words[self].store(1, orders.change);
      seen[self].store(words[1 - self].load(orders.look));
      return false;
    });
  }
  return all.run([&] { return std::string(seen[0].value() + seen[1].value() > 0 ? "" : "neither sees the other"); });
}

void check_each(const Orders& orders, const auto& run) {
  CAPTURE(orders.name);
  CHECK(run(orders) == "");
  CHECK(run({orders.name, std::memory_order_release, orders.look}) != "");
  CHECK(run({orders.name, orders.change, std::memory_order_acquire}) != "");
}

}  // namespace

TEST_CASE("nobody sleeps past what was changed before a bell was rung; each order is needed") {
  for (const Orders& orders : kBells) {
    for (const uint8_t changes : {1, 3}) {
      check_each(orders, [&](const Orders& of) { return look_before_sleep(of, changes); });
    }
  }
}

TEST_CASE("of two that say something and then look, one at least sees the other; each order is needed") {
  for (const Orders& orders : kMutual) check_each(orders, see_each_other);
}

}  // namespace rondo::testing
