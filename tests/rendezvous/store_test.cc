#include "rondo/store.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "rondo/error.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/errors.h"
#include "tests/support/sockets.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/store/memory_store.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using test::soon;

// One contract for every store: rank 0's handle and another's.
void check_contract(Store& a, Store& b) {
  CHECK_FALSE(b.try_get("k", soon()));
  a.put("k", "v", soon());
  CHECK(b.get("k", soon()) == "v");
  CHECK(b.try_get("k", soon()) == "v");
  b.put("k", std::string("\0x\n", 3), soon());
  CHECK(a.get("k", soon()) == std::string("\0x\n", 3));

  CHECK(a.add("n", 5, soon()) == 5);
  CHECK(b.add("n", -7, soon()) == -2);
  CHECK(a.get("n", soon()) == "-2");
  CHECK_THROWS_AS(a.add("k", 1, soon()), Exception);  // no number
  a.put("big", "9223372036854775807", soon());
  CHECK_THROWS_AS(b.add("big", 1, soon()), Exception);
  CHECK(a.get("big", soon()) == "9223372036854775807");

  CHECK(a.compare_set("c", "", "one", soon()) == "one");
  CHECK(b.compare_set("c", "", "two", soon()) == "one");
  CHECK(b.compare_set("c", "one", "two", soon()) == "two");
  CHECK(a.compare_set("absent", "x", "y", soon()) == "");
  CHECK_FALSE(a.try_get("absent", soon()));

  CHECK(a.remove("c", soon()));
  CHECK_FALSE(b.remove("c", soon()));
  CHECK_FALSE(b.try_get("c", soon()));

  a.put("empty", "", soon());
  CHECK(b.get("empty", soon()) == "");

  std::string large(Store::kMaxValueBytes, 'x'), key(Store::kMaxKeyBytes, 'k');
  a.put(key, large, soon());
  CHECK(b.get(key, soon()) == large);
  CHECK_THROWS_AS(a.put(key, large + "x", soon()), Exception);
  CHECK_THROWS_AS(a.put(key + "k", "", soon()), Exception);
  CHECK_THROWS_AS(a.put("", "", soon()), Exception);

  // A waiting get is woken by put, by add and by compare_set.
  std::thread later([&] {
    b.put("w1", "x", soon());
    b.add("w2", 1, soon());
    b.compare_set("w3", "", "y", soon());
  });
  CHECK(a.get("w1", soon()) == "x");
  CHECK(a.get("w2", soon()) == "1");
  CHECK(a.get("w3", soon()) == "y");
  later.join();

  // A deadline ends a wait, and the store goes on.
  auto before = std::chrono::steady_clock::now();
  const Error late = testing::error_of([&] { a.get("never", before + 50ms); });
  CHECK(late.code == ErrorCode::kTimeout);
  CHECK(late.message.find("\"never\"") != std::string::npos);
  auto took = std::chrono::steady_clock::now() - before;
  CHECK(took >= 50ms);
  CHECK(took < 2s);
  a.put("after", "1", soon());
  CHECK(b.get("after", soon()) == "1");
}

TEST_CASE("store: the contract holds in memory") {
  MemoryStore store;
  check_contract(store, store);
}

TEST_CASE("store: the contract holds over TCP, which a file leads to, and over a unix socket") {
  test::Folder folder;
  for (std::string kind : {"file", "unix"}) {
    CAPTURE(kind);
    Config config;
    const std::string rendezvous = kind + "://" + folder.path(kind);
    auto zero = open_store(test::launch(0, 2, rendezvous), config, soon());
    auto one = open_store(test::launch(1, 2, rendezvous), config, soon());
    check_contract(*zero, *one);
  }
}

}  // namespace
}  // namespace rondo
