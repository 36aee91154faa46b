// Needs root and iproute2 (tests/faults/hosts.h): what a network of a given rate leaves to an all_reduce. It times, so
// it is suite `rates`.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "bench/output/steal.h"
#include "tests/faults/hosts.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kBytes = 64 << 20;
constexpr uint64_t kBitsPerSecond = 500'000'000;
constexpr size_t kRounds = 7;         // that count
constexpr double kLeastShare = 0.93;  // of the rate; 0.956 is what headers leave of frames of 1514 bytes

// The bucket that limits the rate holds 2.6 ms. A processor that a hypervisor gives to another machine is away for
// longer, and what the bucket would have filled with in that time is lost. A round with more steal than this, and the
// one after it, in which congestion control recovers, say what the hypervisor left, and do not count.
constexpr double kMostSteal = 0.01;
constexpr auto kPatience = std::chrono::seconds(40);  // of a job, for rounds that count; a process may last 60 s
constexpr int kJobs = 6;  // of 20 to 30 rounds each: four minutes a world, before the hypervisor is blamed

// Microseconds of each all_reduce of kBytes in place that counts, after one untimed, as the last rank saw them end; the
// same on all ranks. At most `wanted`, fewer if patience ends. Throws if a sum is wrong.
std::vector<int64_t> time_sums(Communicator& group, size_t wanted) {
  using Clock = std::chrono::steady_clock;
  std::vector<float> data(kBytes / sizeof(float));
  std::vector<int64_t> times;
  const auto end = Clock::now() + kPatience;
  bool settled = false;  // the round before was not disturbed
  bool patient = true;
  while (times.size() < wanted && patient) {
    std::fill(data.begin(), data.end(), static_cast<float>(group.rank() + 1));
    group.barrier();
    const bench::ProcessorTicks ticks = bench::ticks_now();
    const auto start = Clock::now();
    group.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32, Op::kSum);
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
    const bool disturbed = bench::steal_share(ticks, bench::ticks_now()) > kMostSteal;
    const float sum = static_cast<float>(group.size() * (group.size() + 1) / 2);
    if (std::count(data.begin(), data.end(), sum) != static_cast<std::ptrdiff_t>(data.size())) {
      throw Exception(ErrorCode::kInternal, "a sum is wrong");
    }
    std::array<int64_t, 3> seen{took.count(), disturbed, Clock::now() > end};
    group.all_reduce(seen.data(), seen.data(), seen.size(), DType::kInt64, Op::kMax);
    if (settled && seen[1] == 0) times.push_back(seen[0]);
    settled = seen[1] == 0;
    patient = seen[2] == 0;
  }
  return times;
}

// Times of sums by ranks with a host each.
std::vector<int64_t> time_sums_of(int world, size_t wanted) {
  Hosts hosts(world);
  hosts.limit_rate(kBitsPerSecond);
  std::vector<int> each_on_its_own(static_cast<size_t>(world));
  std::iota(each_on_its_own.begin(), each_on_its_own.end(), 0);
  Job job;
  hosts.start(job, each_on_its_own, [wanted](Here& here) {
    here.say(outcome([&] {
      Communicator group = Communicator::join(here.options);
      const std::vector<int64_t> times = time_sums(group, wanted);
      group.destroy();
      here.say(fmt::format("{}", fmt::join(times, " ")));
    }));
  });
  std::vector<int64_t> times;
  for (int rank = 0; rank < world; ++rank) {
    const std::string said = job[rank].hear(55'000);
    CAPTURE(rank);
    CAPTURE(said);
    REQUIRE(job[rank].hear(5'000) == "ok");
    if (rank > 0) continue;
    std::istringstream list(said);
    for (int64_t time = 0; list >> time;) times.push_back(time);
  }
  return times;
}

}  // namespace

TEST_CASE("hosts: at a limited rate an all_reduce of 64 MiB has nearly all of it as bus bandwidth") {
  // Proves: both directions of every host's interface are busy all the time, worlds 2 and 4.
  for (const int world : {2, 4}) {
    CAPTURE(world);
    std::vector<int64_t> times;
    for (int i = 0; i < kJobs && times.size() < kRounds; ++i) {
      const std::vector<int64_t> more = time_sums_of(world, kRounds - times.size());
      times.insert(times.end(), more.begin(), more.end());
    }
    REQUIRE_MESSAGE(times.size() == kRounds, "the hypervisor took the processors in too many rounds: "
                                                 << times.size() << " of " << kRounds
                                                 << " had none of it; run this where it is less busy");
    std::sort(times.begin(), times.end());
    const double seconds = static_cast<double>(times[kRounds / 2]) * 1e-6;
    const double bus = 2.0 * (world - 1) / world * static_cast<double>(kBytes) / seconds;
    const double share = bus * 8 / static_cast<double>(kBitsPerSecond);
    MESSAGE(fmt::format("world {}: {:.1f} ms, share of the rate {:.3f}", world, seconds * 1e3, share));
    CHECK(share >= kLeastShare);
    CHECK(share <= 1);
  }
}

}  // namespace rondo::testing
