// What RONDO_CHECK and RONDO_CHECKSUM find, by rank and index.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kCount = 100'000;
constexpr uint64_t kIndex = 77'777;

Config checking(const char* what, const char* transport) {
  Config config = fault_config(transport);
  config.check_results = what;
  return config;
}

// Overwrites one element all the time: memory that is damaged behind the library's back.
class Damage {
 public:
  explicit Damage(float* element)
      : thread_([this, element] {
          while (!stop_.load()) *static_cast<volatile float*>(element) = 1e9f;
        }) {}
  ~Damage() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("RONDO_CHECK=finite: the rank and the index of a NaN or an infinity, on every rank") {
  for (const char* transport : {"tcp", "auto"}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      CAPTURE(transport);
      Job job;
      job.start(
          3,
          [bad](Here& here) {
            Communicator group = Communicator::join(here.options);
            std::vector<float> values(kCount, 1);
            if (here.rank() == 1) values[kIndex] = bad;
            here.say("joined");
            here.await();
            here.say(here.timed([&] { group.all_reduce(values.data(), values.data(), kCount, DType::kFloat32); }));
          },
          checking("finite", transport));
      job.expect_all("joined");
      job.tell_all("go");
      for (int rank = 0; rank < 3; ++rank) {
        const Timed said = timed_line(job[rank].hear());
        CAPTURE(said.outcome);
        CHECK(said.begins("NOT_FINITE [1] all_reduce("));
        CHECK(said.has(fmt::format("element {} of the input of rank 1 ", kIndex)));
        CHECK(said.elapsed_ms < 1'500);
      }
    }
  }
}

// The thread sanitizer would see the damage as the race that it is.
#ifndef __SANITIZE_THREAD__
TEST_CASE(
    "fault 51: RONDO_CHECK=digest names the rank whose result is not the others', and the element, on every rank") {
  for (const char* transport : {"tcp", "auto"}) {
    CAPTURE(transport);
    Job job;
    job.start(
        3,
        [](Here& here) {
          Communicator group = Communicator::join(here.options);
          std::vector<float> values(kCount, 1);
          here.say(outcome([&] {
            group.broadcast(values.data(), kCount, DType::kFloat32, 0);
            std::optional<Damage> damage;
            if (here.rank() == 2) damage.emplace(&values[kIndex]);
            // The thread may not run in a given call.
            for (int call = 0; call < 2'000; ++call) group.broadcast(values.data(), kCount, DType::kFloat32, 0);
          }));
        },
        checking("digest", transport));
    const std::string said = job[0].hear();
    CAPTURE(said);
    CHECK(said.find("CORRUPT [") == 0);
    CHECK(said.find("the result of broadcast(") != std::string::npos);
    // Rank 2, or, where the route passes what it has on to rank 1, the one that the damage has not reached.
    CHECK(said.find(fmt::format("from element {} on: that of rank ", kIndex)) != std::string::npos);
    for (const int rank : {1, 2}) CHECK(job[rank].hear() == said);
  }
}
#endif

}  // namespace rondo::testing
