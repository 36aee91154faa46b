// Buffers beyond 2^31 elements and 2^32 bytes. Needs some 10 GiB of memory and minutes: the suite faults-long, or
// `bazel test //tests/engine:big_test`.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

RankGroup pair() {
  RankGroup group;
  group.config.timeout_ms = 400'000;
  group.deadline = std::chrono::seconds(600);
  return group;
}

// Fails at once instead of swapping the machine to death.
void expect_memory(uint64_t bytes) {
  const auto free = static_cast<uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  REQUIRE_MESSAGE(free > bytes + (uint64_t{1} << 30), fmt::format("{} bytes are free, {} are needed", free, bytes));
}

// Without touching the memory first.
template <typename T>
std::unique_ptr<T[]> room(uint64_t count) {
  return std::unique_ptr<T[]>(new T[count]);
}

// Repeats with a period that is no power of two: a shift by any slice, or by 2^31 or 2^32, is seen.
int64_t pattern(uint64_t i) { return static_cast<int64_t>(i % 31); }

}  // namespace

TEST_CASE("fault 43: all_reduce of 2^31 + 7 int8") {
  constexpr uint64_t kCount = (uint64_t{1} << 31) + 7;
  expect_memory(2 * kCount);
  CHECK(run_processes(pair(), [](Communicator& group) {
          const auto x = room<int8_t>(kCount);
          for (uint64_t i = 0; i < kCount; ++i) x[i] = static_cast<int8_t>(pattern(i) + group.rank());
          group.all_reduce(x.get(), x.get(), kCount, DType::kInt8);
          for (uint64_t i = 0; i < kCount; ++i) {
            if (x[i] != 2 * pattern(i) + 1) expect(false, fmt::format("element {} is {}", i, x[i]));
          }
        }) == "");
}

TEST_CASE("fault 43: all_reduce, broadcast and a message of more than 4 GiB of float32") {
  constexpr uint64_t kCount = (uint64_t{1} << 30) + 12'345;
  constexpr uint64_t kBytes = kCount * sizeof(float);
  expect_memory(2 * kBytes);
  CHECK(run_processes(pair(), [](Communicator& group) {
          const int rank = group.rank();
          const auto x = room<float>(kCount);
          const auto fill = [&](int add) {
            for (uint64_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(pattern(i) + add);
          };
          const auto check = [&](int factor, int add, const char* what) {
            for (uint64_t i = 0; i < kCount; ++i) {
              if (x[i] != static_cast<float>(factor * pattern(i) + add)) {
                expect(false, fmt::format("{}: element {} is {}", what, i, x[i]));
              }
            }
          };
          fill(rank);
          group.all_reduce(x.get(), x.get(), kCount, DType::kFloat32);
          check(2, 1, "all_reduce");
          fill(rank + 5);
          group.broadcast(x.get(), kCount, DType::kFloat32, 1);
          check(1, 6, "broadcast");
          fill(rank + 9);
          if (rank == 0) group.send(x.get(), kCount, DType::kFloat32, 1);
          if (rank == 1) {
            expect(group.recv(x.get(), kCount, DType::kFloat32, 0).bytes == kBytes, "the message's length");
          }
          check(1, 9, "message");
        }) == "");
}

}  // namespace rondo::testing
