// Small rooted collectives inside an island: a rank that has all it takes returns before the others have come.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

constexpr int kCalls = 200;

// A test that hangs here is ended by its time limit.
void wait_for(const std::atomic<int>& calls, int at_least) {
  while (calls.load() < at_least) std::this_thread::yield();
}

// The first call maps the ranks' memory, for which all are needed.
void share_memory(Communicator& group) {
  float sum = 1;
  group.all_reduce(&sum, &sum, 1, DType::kFloat32);
}

void expect_value(int value, int wanted, int call) {
  if (value != wanted) throw Exception(ErrorCode::kInternal, fmt::format("call {}: {} is not {}", call, value, wanted));
}

}  // namespace

TEST_CASE(
    "the root of broadcasts returns before the others have called, and is as many calls ahead as a board has posts") {
  // Proves: its next call needs the others in the first; no post is overwritten that somebody has yet to read, be it
  // beside its flag, in a slot or in the ring.
  constexpr int kAhead = 7;  // PostBoard::kDepth - 1
  for (const int world : {2, 3}) {
    for (const size_t count : {1, 200, 1500}) {
      CAPTURE(world);
      CAPTURE(count);
      RankGroup shape{.world = world};
      std::atomic<int> root_calls{0};
      CHECK(run_threads(shape, [&](Communicator& group) {
              share_memory(group);
              for (int call = 1; call <= kCalls; ++call) {
                std::vector<int> values(count, group.rank() == 0 ? call : 0);
                if (group.rank() != 0) wait_for(root_calls, std::min(kCalls, call + kAhead - 1));
                group.broadcast(values.data(), count, DType::kInt32, 0);
                if (group.rank() == 0) ++root_calls;
                expect_value(values.front(), call, call);
                expect_value(values.back(), call, call);
              }
            }) == "");
    }
  }
}

TEST_CASE("a rank that gives to a reduce returns before the root has called") {
  for (const int world : {2, 3}) {
    CAPTURE(world);
    RankGroup shape{.world = world};
    std::atomic<int> others_calls{0};
    CHECK(run_threads(shape, [&](Communicator& group) {
            share_memory(group);
            for (int call = 1; call <= kCalls; ++call) {
              int value = call, sum = 0;
              if (group.rank() == 0) wait_for(others_calls, call * (world - 1));
              group.reduce(&value, &sum, 1, DType::kInt32, Op::kSum, 0);
              if (group.rank() != 0) ++others_calls;
              if (group.rank() == 0) expect_value(sum, call * world, call);
              if (call % 10 == 0) group.barrier();  // posts of other collectives follow
            }
          }) == "");
  }
}

TEST_CASE("two ranks that each take themselves for the root both learn it, though neither takes anything") {
  // Proves: of two posts of different calls the later rank sees the other's; nobody goes on with what is not agreed.
  RankGroup shape;
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    CHECK(run_threads(shape, [&](Communicator& group) {
            share_memory(group);
            int value = group.rank();
            const Error error = error_of([&] {
              group.broadcast(&value, 1, DType::kInt32, group.rank());
              group.barrier();  // what the later of two different calls has found
            });
            for (const char* root : {"root=0", "root=1"}) expect_error(error, ErrorCode::kMismatch, root);
          }) == "");
  }
}

TEST_CASE("what a root has posted arrives, although it leaves at once") {
  // Proves: among threads, the post and its window stay for those that have not mapped them yet.
  RankGroup shape{.world = 3};
  for (const size_t count : {1, 200, 1500}) {  // beside its flag, in a slot, in the ring
    CAPTURE(count);
    CHECK(run_threads(shape, [&](Communicator& group) {
            for (int call = 1; call <= kCalls; ++call) {
              Communicator part = group.split(0, group.rank());
              const std::vector<int> parts(3 * count, call);
              std::vector<int> values(count);
              part.scatter(parts.data(), values.data(), count, DType::kInt32, call % 3);
              part.destroy();
              expect_value(values.back(), call, call);
            }
          }) == "");
  }
}

}  // namespace rondo::testing
