// Needs root and iproute2 (tests/faults/hosts.h): what a network of a given rate leaves to an all_reduce. It times, so
// it is suite `rates`.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "tests/faults/hosts.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kBytes = 64 << 20;
constexpr int kRounds = 7;
constexpr double kLeastShare = 0.93;  // of the rate; 0.956 is what headers leave of frames of 1514 bytes

// Microseconds of each all_reduce of kBytes in place, after one untimed, as the last rank saw them end.
std::vector<int64_t> time_sums(Communicator& group) {
  std::vector<float> data(kBytes / sizeof(float));
  std::vector<int64_t> times;
  for (int round = 0; round <= kRounds; ++round) {
    std::fill(data.begin(), data.end(), static_cast<float>(group.rank() + 1));
    group.barrier();
    const auto start = std::chrono::steady_clock::now();
    group.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32, Op::kSum);
    int64_t took =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
    const float sum = static_cast<float>(group.size() * (group.size() + 1) / 2);
    if (std::count(data.begin(), data.end(), sum) != static_cast<std::ptrdiff_t>(data.size())) return {};
    group.all_reduce(&took, &took, 1, DType::kInt64, Op::kMax);
    if (round > 0) times.push_back(took);
  }
  return times;
}

}  // namespace

TEST_CASE("hosts: at a limited rate an all_reduce of 64 MiB has nearly all of it as bus bandwidth") {
  // Proves: both directions of every host's interface are busy all the time, at 500 Mbit/s, worlds 2 and 4.
  constexpr uint64_t kBitsPerSecond = 500'000'000;
  for (const int world : {2, 4}) {
    CAPTURE(world);
    Hosts hosts(world);
    hosts.limit_rate(kBitsPerSecond);
    std::vector<int> each_on_its_own(static_cast<size_t>(world));
    std::iota(each_on_its_own.begin(), each_on_its_own.end(), 0);
    Job job;
    hosts.start(job, each_on_its_own, [](Here& here) {
      Communicator group = Communicator::join(here.options);
      std::vector<int64_t> times = time_sums(group);
      std::sort(times.begin(), times.end());
      here.say(times.empty() ? "a sum is wrong" : fmt::format("{}", times[times.size() / 2]));
      group.destroy();
    });
    for (int rank = 0; rank < world; ++rank) {
      const std::string said = job[rank].hear(50'000);
      CAPTURE(rank);
      CAPTURE(said);
      REQUIRE(!said.empty());
      REQUIRE(said.find_first_not_of("0123456789") == std::string::npos);
      const double seconds = std::stod(said) * 1e-6;
      const double bus = 2.0 * (world - 1) / world * static_cast<double>(kBytes) / seconds;
      const double share = bus * 8 / static_cast<double>(kBitsPerSecond);
      if (rank == 0) MESSAGE(fmt::format("world {}: {:.1f} ms, share of the rate {:.3f}", world, seconds * 1e3, share));
      CHECK(share >= kLeastShare);
      CHECK(share <= 1);
    }
  }
}

}  // namespace rondo::testing
