// Large operations on several lanes that have threads of their own: results, and what a failure in the middle leaves.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include "tests/engine/cases.h"
#include "tests/support/collective_call.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using std::chrono::milliseconds;

// A mebibyte of float32 and more has help; small slices make many passes of it.
RankGroup group_of(int world, uint32_t lanes, int32_t threads, const char* transport) {
  RankGroup group;
  group.world = world;
  group.config.transport = transport;
  group.config.lanes = lanes;
  group.config.lane_threads = threads;
  group.config.slice_bytes = 16 * 1024;
  return group;
}

void run_large_cases(Communicator& group) {
  const auto cases = all_shapes({group.size(), {300'007}, {group.size() - 1}});
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto algorithms = available_algorithms(cases[i].collective, group.topology());
    run_case(group, cases[i], algorithms[i % algorithms.size()]);
  }
}

// Many at once, driven by the progress thread, small ones among them.
void run_in_flight(Communicator& group) {
  constexpr size_t kFlight = 12;
  std::vector<std::vector<int64_t>> numbers;
  std::vector<Work> works;
  for (size_t i = 0; i < kFlight; ++i)
    numbers.emplace_back(i % 3 == 0 ? 5 : 150'000 + 997 * i, static_cast<int64_t>(i));
  for (auto& each : numbers) {
    CollectiveCall call;
    call.input = call.output = each.data();
    call.count = each.size();
    call.dtype = DType::kInt64;
    works.push_back(start(group, call));
  }
  for (Work& work : works) work.wait();
  for (size_t i = 0; i < kFlight; ++i) {
    const int64_t sum = group.size() * static_cast<int64_t>(i);
    expect(std::all_of(numbers[i].begin(), numbers[i].end(), [&](int64_t n) { return n == sum; }),
           fmt::format("operation {} in flight is wrong", i));
  }
}

struct Shape {
  int world;
  uint32_t lanes;
  int32_t threads;
};
constexpr Shape kShapes[] = {{2, 2, 1}, {3, 3, 2}, {2, 4, 1}, {4, 2, 15}};

}  // namespace

TEST_CASE("every collective is right with lanes that have threads, over memory, TCP and shared memory") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.world);
    CAPTURE(shape.lanes);
    CAPTURE(shape.threads);
    const RankBody body = [](Communicator& group) {
      run_large_cases(group);
      run_in_flight(group);
    };
    CHECK(run_threads(group_of(shape.world, shape.lanes, shape.threads, "auto"), body) == "");
    CHECK(run_processes(group_of(shape.world, shape.lanes, shape.threads, "tcp"), body) == "");
    CHECK(run_processes(group_of(shape.world, shape.lanes, shape.threads, "shm"), body) == "");
  }
}

TEST_CASE("after an abort in the middle nothing writes to the caller's memory any more") {
  // Proves: the helpers are out of the buffers when the call returns, wherever the abort meets it.
  const RankBody body = [](Communicator& group) {
    constexpr uint64_t kCount = 4 << 20;
    std::vector<float> numbers(kCount, 1.0f);
    std::thread culprit;
    if (group.rank() == 1) {
      culprit = std::thread([&] {
        std::this_thread::sleep_for(milliseconds(30));
        group.abort("on purpose");
      });
    }
    std::string said;
    try {
      for (int i = 0; i < 1000; ++i) group.all_reduce(numbers.data(), numbers.data(), kCount, DType::kFloat32);
    } catch (const Exception& failure) {
      said = failure.what();
    }
    if (culprit.joinable()) culprit.join();
    expect(said.find("on purpose") != std::string::npos, "the call ended with: " + said);
    std::fill(numbers.begin(), numbers.end(), 7.0f);
    std::this_thread::sleep_for(milliseconds(50));
    expect(std::all_of(numbers.begin(), numbers.end(), [](float x) { return x == 7.0f; }), "the buffer was written");
  };
  for (int round = 0; round < 3; ++round) {
    CHECK(run_threads(group_of(3, 3, 2, "auto"), body) == "");
    CHECK(run_processes(group_of(3, 3, 2, "tcp"), body) == "");
  }
}

TEST_CASE("a rank that stays away is named at the deadline, though others' lanes had begun") {
  RankGroup shape = group_of(3, 2, 1, "tcp");
  shape.config.timeout_ms = 1'000;
  CHECK(run_processes(shape, [](Communicator& group) {
          std::vector<float> numbers(1 << 20, 1.0f);
          std::string said;
          try {
            group.all_reduce(numbers.data(), numbers.data(), numbers.size(), DType::kFloat32);
            if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(4));
            group.all_reduce(numbers.data(), numbers.data(), numbers.size(), DType::kFloat32);
          } catch (const Exception& failure) {
            expect(failure.code() == ErrorCode::kTimeout, std::string("not a timeout: ") + failure.what());
            said = failure.what();
          }
          expect(group.rank() == 2 || said.find("these ranks have not made the call: 2") != std::string::npos,
                 "said: " + said);
        }) == "");
}

TEST_CASE("as many threads are started as are wanted, and none before they have something to do") {
  const auto threads = [] {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
    return count;
  };
  for (const int32_t wanted : {0, 1}) {
    RankGroup shape = group_of(2, 2, wanted, "tcp");
    CHECK(run_processes(shape, [&](Communicator& group) {
            std::vector<float> numbers(1 << 20, 1.0f);
            group.barrier();
            const int before = threads();
            group.all_reduce(numbers.data(), numbers.data(), numbers.size(), DType::kFloat32);
            const int after = threads();
            expect(after - before == wanted, fmt::format("{} threads, {} before", after, before));
          }) == "");
  }
}

}  // namespace rondo::testing
