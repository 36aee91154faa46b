// Ranks as threads that fail in the middle of a call on each other's memory, at random times: each frees or refills its
// buffers as soon as its own call has failed. Under the address and the thread sanitizer this shows that no rank
// touches them any more.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr float kRefilled = -1;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 60;
constexpr size_t kLargest = 200'000;
#else
constexpr uint64_t kSeeds = 200;
constexpr size_t kLargest = 2'000'000;
#endif

struct Trial {
  int world = 2;
  size_t count = 0;  // float32
  int aborts = 0;    // rank
  uint64_t after = 0;
  explicit Trial(uint64_t seed) {
    Random random(seed);
    world = static_cast<int>(random.between(2, 3));
    count = random.between(1, kLargest);
    aborts = static_cast<int>(random.below(static_cast<uint64_t>(world)));
    after = random.below(random.chance(50) ? 3'000 : 60'000);
  }
};

Call sum_of(const float* input, float* output, size_t count, Algorithm algorithm) {
  Call call;
  call.input = input;
  call.output = output;
  call.count = count;
  call.options.algorithm = algorithm;
  return call;
}

// False: it failed. Throws if a sum is wrong.
bool sums(Communicator& group, const Call& call) {
  try {
    group.run(call);
  } catch (const Exception& failure) {
    expect(failure.code() == ErrorCode::kAborted || failure.code() == ErrorCode::kPeerLost, failure.what());
    return false;
  }
  const auto* output = static_cast<const float*>(call.output);
  const auto sum = static_cast<float>(group.size());
  expect(std::all_of(output, output + call.count, [sum](float value) { return value == sum; }),
         "success, and a wrong sum");
  return true;
}

// Runs `body` on every rank; one of them aborts meanwhile, from another thread.
template <typename Body>
std::string run_trial(const Trial& trial, Body body) {
  RankGroup shape;
  shape.world = trial.world;
  shape.config.staging_bytes = 64 * 1024;
  return run_threads(shape, [&](Communicator& group) {
    std::thread aborter;
    if (group.rank() == trial.aborts) {
      aborter = std::thread([&] {
        for (std::atomic<uint64_t> spins = 0; spins < trial.after;) ++spins;
        group.abort("enough");
      });
    }
    std::string wrong;
    try {
      body(group);
    } catch (const std::exception& failure) {
      wrong = failure.what();
    }
    if (aborter.joinable()) aborter.join();
    expect(wrong.empty(), wrong);
  });
}

}  // namespace

TEST_CASE("pull: a rank that has failed frees its buffers, and the others' sums are right or fail") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Trial trial(seed);
    const std::string wrong = run_trial(trial, [&](Communicator& group) {
      for (bool good = true; good;) {
        std::vector<float> input(trial.count, 1), output(trial.count);
        good = sums(group, sum_of(input.data(), output.data(), trial.count, Algorithm::kPull));
        std::fill(input.begin(), input.end(), kRefilled);
        std::fill(output.begin(), output.end(), kRefilled);
      }
    });
    REQUIRE_MESSAGE(wrong.empty(), fmt::format("seed {}: {}", seed, wrong));
  }
}

TEST_CASE("registered: nobody writes to the buffers of a rank whose call has failed") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Trial trial(seed);
    std::atomic<int> failed{0};
    const std::string wrong = run_trial(trial, [&](Communicator& group) {
      auto* values = static_cast<float*>(group.allocate(trial.count * sizeof(float)));
      do std::fill_n(values, trial.count, 1.0f);
      while (sums(group, sum_of(values, values, trial.count, Algorithm::kRegistered)));
      std::fill_n(values, trial.count, kRefilled);
      ++failed;
      while (failed < trial.world) std::this_thread::yield();
      expect(std::all_of(values, values + trial.count, [](float value) { return value == kRefilled; }),
             "somebody wrote to memory of a call that had failed");
    });
    REQUIRE_MESSAGE(wrong.empty(), fmt::format("seed {}: {}", seed, wrong));
  }
}

}  // namespace rondo::testing
