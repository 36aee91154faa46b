// The lanes of several ranks as threads, which pause at random: the ranks make calls of several plans on the memory of
// all, with messages among them, and every result is right, also where the numbers of calls wrap around. All executions
// of small instances, and that each ordering is needed: lane_model_test.cc.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/device/lane_calls.h"
#include "tests/support/host_lane.h"

namespace rondo::testing {
namespace {

constexpr uint32_t kRanks = 3, kLanes = 2, kCalls = 150, kCount = 96, kPosted = 61;

// What a lane runs on: passes of a test's own, whose accesses the sanitizer sees.
struct Runs {
  void run(const DeviceFold& fold) {
    for (uint64_t i = 0; i < LaneCalls::count_of(fold); ++i) {
      uint32_t sum = 0;
      for (int s = 0; s < fold.source_count; ++s) sum += static_cast<const uint32_t*>(fold.sources[s])[i];
      for (int t = 0; t < fold.target_count; ++t) static_cast<uint32_t*>(fold.targets[t])[i] = sum;
      if (i % 16 == 0) pause();
    }
  }
  void pause() {
    random = random * 1664525 + 1013904223;
    if (random >> 30 == 0) std::this_thread::yield();
  }
  void* reach(const void* at, uint64_t) const { return const_cast<void*>(at); }
  uint32_t random;
};

bool run_rank(LaneCalls& calls, uint32_t rank, uint32_t number) {
  LaneCalls::Rank& own = calls.of(rank);
  const DeviceCall call = calls.make(rank, number);
  for (uint32_t i = 0; i < kRanks * kCount; ++i) own.memory[i] = LaneCalls::input_of(rank, number, i / kCount);
  std::vector<std::thread> lanes;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    lanes.emplace_back([&, lane] {
      Runs runs{number * 97 + rank * 31 + lane};
      run_host_lane(call, runs, lane, kLanes);
    });
  }
  // The host looks at the word alone: what the threads' ends order, it does not know.
  while (std::atomic_ref<uint32_t>(own.status.passed).load(std::memory_order_acquire) != number) {
    std::this_thread::yield();
  }
  bool right = own.status.failure == 0;
  for (uint32_t i = 0; i < calls.outputs_of(number); ++i) {
    right = right && own.memory[kRanks * kCount + i] == calls.output_of(number, i / kCount);
  }
  for (std::thread& lane : lanes) lane.join();
  return right;
}

bool run_all(LaneCalls& calls, uint32_t last) {
  std::vector<std::thread> threads;
  std::atomic<bool> right{true};
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (uint32_t number = 1; number <= last && right.load(std::memory_order_relaxed); ++number) {
        if (!run_rank(calls, rank, number)) right = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return right;
}

using Form = LaneCalls::Form;

}  // namespace

TEST_CASE("calls of several plans give the right results, whenever each lane runs") {
  constexpr auto kSum = Form::kSum, kStaged = Form::kStaged, kUneven = Form::kUneven, kGather = Form::kGather,
                 kPosts = Form::kPosts;
  LaneCalls calls(kRanks, kCount,
                  {kSum, kStaged, kGather, kUneven, kPosts, kPosts, kStaged, kUneven, kUneven, kSum, kPosts}, kPosted);
  CHECK(run_all(calls, kCalls));
}

TEST_CASE("words that were left by a call of the same count, 2^32 calls before, are overwritten in time; slices wrap") {
  constexpr uint32_t kBefore = kRenewedCalls / 2 - 2, kOfPosts = kBefore + 4, kSlicesBefore = UINT32_MAX - 1;
  LaneCalls calls(kRanks, kCount, {Form::kSum, Form::kStaged, Form::kSum, Form::kPosts}, kPosted);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      DeviceControl::Lane& own = calls.of(rank).control->lanes[lane];
      own.calls = kBefore;
      own.slices = kSlicesBefore;
      for (LaneMail& mail : own.from) std::fill_n(mail.words, kMessageWords, kSlicesBefore);
    }
    for (uint64_t& word : calls.of(rank).posts) word = 99 | uint64_t{kOfPosts} << 32;
  }
  CHECK(run_all(calls, 4));
}

}  // namespace rondo::testing
