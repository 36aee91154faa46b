#include <doctest/doctest.h>
#include <sys/resource.h>

#include <chrono>
#include <vector>

#include "tests/rendezvous/served.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/resources.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using test::check_serving;
using test::Served;
using test::soon;
using testing::Resources;
using Clock = std::chrono::steady_clock;

}  // namespace

TEST_CASE("fault 26: strangers: 10,000 silent connections leave memory bounded and a client served") {
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  REQUIRE(limit.rlim_cur > 10'600);
  Served served(60'000);
  check_serving(served);
  StreamStore early(served.client());
  early.put("early", "1", soon());
  const size_t before = Resources::now().resident_bytes;
  std::vector<Descriptor> silent;
  for (int i = 0; i < 10'000; ++i) {
    silent.push_back(served.stranger());
    REQUIRE(silent.back().valid());
  }
  auto start = Clock::now();
  check_serving(served);
  CHECK(Clock::now() - start < 5s);
  CHECK(early.get("early", soon()) == "1");  // who was there before is still there
  CHECK(Resources::now().resident_bytes < before + (16 << 20));
}

}  // namespace rondo
