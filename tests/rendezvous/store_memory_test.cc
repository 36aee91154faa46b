// A store's server without memory for one request: who asked hears it at once, its will counts, and the others are
// served. This binary has its own operator new, which refuses what is large on other threads than the test's.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "rondo/error.h"
#include "tests/rendezvous/served.h"

namespace {

constexpr size_t kLarge = 100'000;
std::atomic<bool> refusing{false};
thread_local bool is_test = false;

}  // namespace

void* operator new(size_t bytes) {
  if (refusing.load() && !is_test && bytes > kLarge) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rondo {
namespace {

using test::soon;

TEST_CASE("a request for which there is no memory ends its client alone, at once") {
  is_test = true;
  test::Served served;
  StreamStore asks(served.client()), waits(served.client());
  asks.leave_will("will", "it has gone: ", soon());
  std::string heard;
  std::thread waiter([&] {
    try {
      heard = waits.get("will", soon());
    } catch (const Exception& failure) {
      heard = failure.what();
    }
  });
  refusing = true;
  CHECK_THROWS_WITH_AS(asks.put("k", std::string(5 * kLarge, 'x'), soon()), doctest::Contains("is gone"), Exception);
  waiter.join();
  CHECK(heard.find("it has gone: its request could not be served") == 0);
  test::check_serving(served);
  refusing = false;
}

}  // namespace
}  // namespace rondo
