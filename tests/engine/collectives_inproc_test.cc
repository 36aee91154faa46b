// Ranks as threads over memory: results, several communicators at once, and asynchronous calls.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/engine/cases.h"
#include "tests/support/eventually.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using std::chrono::milliseconds;

Call sum_call(std::vector<int64_t>& numbers) {
  Call call;
  call.input = call.output = numbers.data();
  call.count = numbers.size();
  call.dtype = DType::kInt64;
  return call;
}

void expect_all(const std::vector<int64_t>& numbers, int64_t value, const char* what) {
  for (const int64_t n : numbers) {
    expect(n == value, [&] { return fmt::format("{}: {}, should be {}", what, n, value); });
  }
}

}  // namespace

TEST_CASE("large calls between threads that overtake each other in the middle of a pass") {
  // Proves: a sender may go on as soon as its peer has read, however many slices that are in one pass.
  for (const int world : {2, 3}) {
    RankGroup shape{.world = world};
    shape.config.slice_bytes = 4096;
    CHECK(run_threads(shape, [world](Communicator& group) {
            for (int i = 0; i < 20; ++i) {
              std::vector<int64_t> numbers(100'000, 1);
              group.run(sum_call(numbers));
              expect_all(numbers, world, "sum");
            }
          }) == "");
  }
}

TEST_CASE("fault 42: every collective gives the reference result on threads, whatever its shape and algorithm") {
  // Proves: the same as over TCP, for the links over memory.
  for (const int world : {1, 2, 3, 4, 7}) {
    CAPTURE(world);
    RankGroup shape{.world = world};
    shape.config.slice_bytes = 4096;
    const auto cases = all_shapes({world, usual_counts(world, 20'011), {world - 1}});
    CHECK(run_threads(shape, [&](Communicator& group) { run_by_every_algorithm(group, cases); }) == "");
  }
}

TEST_CASE("a group of one takes whatever algorithm a larger group of the same ranks would take") {
  // Proves: a program that names an algorithm runs with one rank, too, and after a split that leaves a rank alone.
  const RankGroup shape;
  const RankBody body = [](Communicator& group) {
    Communicator alone = group.split(group.rank());
    for (const Algorithm algorithm : {Algorithm::kWindow, Algorithm::kStaged, Algorithm::kRegistered, Algorithm::kTree,
                                      Algorithm::kHierarchical, Algorithm::kStar, Algorithm::kHalvingDoubling}) {
      std::vector<int64_t> numbers(1000, 7);
      Call call = sum_call(numbers);
      call.options.algorithm = algorithm;
      alone.run(call);
      expect_all(numbers, 7, algorithm_name(algorithm));
    }
  };
  CHECK(run_threads(shape, body) == "");
  CHECK(run_processes(shape, body) == "");
}

TEST_CASE("fault 70: several communicators at once, from several threads, without a common order") {
  // Proves: communicators of the same ranks share nothing that one could hold while it waits for another.
  constexpr int kGroups = 3;
  const RankBody body = [](Communicator& group) {
    std::array<Communicator, kGroups> groups;
    for (Communicator& part : groups) part = group.split(0);
    run_in_threads(kGroups, [&](int g) {
      Communicator& own = groups[static_cast<size_t>(g)];
      try {
        for (const CollectiveCase& what : all_shapes({group.size(), {1, 1237}, {g}})) run_case(own, what);
      } catch (const std::exception& failure) {
        own.abort(failure.what());
        throw;
      }
    });
  };
  CHECK(run_everywhere(3, body) == "");
}

TEST_CASE("fault 70: several threads call on one communicator: calls are serialized") {
  // Proves: any thread may call; equal calls may come in any order.
  const RankBody body = [](Communicator& group) {
    run_in_threads(4, [&](int) {
      for (int i = 0; i < 100; ++i) {
        std::vector<int64_t> ones(500, 1);
        group.run(sum_call(ones));
        expect_all(ones, 2, "sum");
      }
    });
  };
  CHECK(run_everywhere(2, body) == "");
}

TEST_CASE("asynchronous calls: many in flight, waited for out of order, dropped, waited for by two threads") {
  // Proves: the operations go on without a waiter, end in call order, and a handle is only a handle.
  const RankBody body = [](Communicator& group) {
    constexpr size_t kFlight = 20;
    std::vector<std::vector<int64_t>> numbers;
    std::vector<Work> works;
    for (size_t i = 0; i < kFlight; ++i) numbers.emplace_back(1 + 997 * i, static_cast<int64_t>(i));
    for (auto& each : numbers) works.push_back(group.start(sum_call(each)));
    Random random(static_cast<uint64_t>(group.rank()));
    while (!works.empty()) {
      const size_t i = random.below(works.size());
      works[i].wait();
      expect(works[i].done() && !works[i].error(), "done after wait");
      works.erase(works.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (size_t i = 0; i < kFlight; ++i) expect_all(numbers[i], 3 * static_cast<int64_t>(i), "in flight");

    std::vector<int64_t> dropped(50'000, 1), last(10, 2);
    group.start(sum_call(dropped));  // the handle is destroyed at once
    Work work = group.start(sum_call(last));
    Work copy = work;
    std::thread other([&copy] { copy.wait(); });
    work.wait();
    other.join();
    expect_all(dropped, 3, "dropped");  // calls end in their order
    expect_all(last, 6, "two threads");
  };
  CHECK(run_everywhere(3, body) == "");
}

TEST_CASE("a wait that runs out is no error, and the operation goes on") {
  const RankBody body = [](Communicator& group) {
    std::vector<int64_t> numbers(1000, 1);
    if (group.rank() == 1) {
      // Rank 0 calls nothing before it hears that this wait ran out.
      Work work = group.start(sum_call(numbers));
      expect(!work.wait(milliseconds(20)), "nobody else has called");
      expect(!work.wait(milliseconds(0)) && !work.done() && !work.error(), "still under way");
      const int64_t go = 1;
      group.send(&go, 1, DType::kInt64, 0);
      expect(work.wait(std::chrono::seconds(60)), "it succeeds at last");
      expect(work.wait(milliseconds(0)), "again");
      expect(work.wait(std::chrono::nanoseconds::min()), "a time long past");
    } else {
      int64_t go = 0;
      group.recv(&go, 1, DType::kInt64, 1);
      group.start(sum_call(numbers)).wait(std::chrono::nanoseconds::max());
    }
    expect_all(numbers, 2, "sum");
    expect(!Work().valid(), "an empty handle");
  };
  CHECK(run_everywhere(2, body) == "");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr milliseconds kManyRanksBegin{60'000};  // 80 threads on few cores, each several times as slow
#else
constexpr milliseconds kManyRanksBegin{2'000};
#endif

TEST_CASE("fault 14: of many ranks all absent ones are named, though none was asked before the deadline") {
  RankGroup shape;
  shape.world = 80;  // more than are asked at a time
  shape.config.stall_ms = 180'000;
  const RankBody body = [](Communicator& group) {
    std::vector<int64_t> numbers(8, 1);
    group.barrier();
    try {
      if (group.rank() == 60 || group.rank() == 70) {
        eventually([&] { return group.error().has_value(); }, 180'000);
        group.barrier();
      } else {
        Call call = sum_call(numbers);
        call.options.timeout = kManyRanksBegin;
        group.start(call).wait();
      }
      expect(false, "it ended without two ranks");
    } catch (const Exception& failure) {
      expect(failure.code() == ErrorCode::kTimeout && failure.error().ranks == std::vector<int>{60, 70},
             fmt::format("[{}] {}", fmt::join(failure.error().ranks, ","), failure.what()));
    }
  };
  CHECK(run_threads(shape, body) == "");
}

}  // namespace rondo::testing
