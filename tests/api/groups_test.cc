// Communicators beside one another: dup(), groups that only their members make, and failures that stay with the one
// that has failed.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {
namespace {

constexpr DType kInt64 = DType::kInt64;

void expect_works(Communicator& group, const char* which) {
  int64_t sum = group.rank(), got = -1;
  group.all_reduce(&sum, &sum, 1, kInt64);
  expect(sum == group.size() * (group.size() - 1) / 2, std::string(which) + ": all_reduce");
  const int64_t mine = group.rank();
  const int next = (group.rank() + 1) % group.size(), before = (group.rank() + group.size() - 1) % group.size();
  group.sendrecv(&mine, 1, next, &got, 1, before, kInt64);
  expect(got == before, std::string(which) + ": sendrecv");
}

}  // namespace

TEST_CASE("a communicator once more has calls and messages of its own") {
  CHECK(run_everywhere(3, [](Communicator& group) {
          Communicator copy = group.dup(), again = copy.dup();
          expect(copy.rank() == group.rank() && copy.size() == group.size(), "the same ranks");
          // A message of the one is none of the other, whatever the order.
          const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
          int64_t a = 1, b = 2, c = 3, x = 0, y = 0, z = 0;
          Work sends[] = {group.send_async(&a, 1, kInt64, next), copy.send_async(&b, 1, kInt64, next),
                          again.send_async(&c, 1, kInt64, next)};
          again.recv(&z, 1, kInt64, before);
          copy.recv(&y, 1, kInt64, before);
          group.recv(&x, 1, kInt64, before);
          for (Work& send : sends) send.wait();
          expect(x == 1 && y == 2 && z == 3, "messages of three communicators");
          Work work = copy.barrier_async();
          expect_works(group, "the first");
          work.wait();
          expect_works(again, "the copy's copy");
          group.destroy();
          expect_works(copy, "the copy, after the first has gone");
        }) == "");
}

// One rank is slow to make it, and another fails it at once, each in turn: by a result, by digests, by abort().
TEST_CASE("a communicator's making throws nothing that a faster member has met in it") {
  RankGroup shape{.world = 3};
  shape.config.check_results = "finite";
  const auto body = [](Communicator& group) {
    const std::array<int, 3> all{0, 1, 2};
    for (int round = 0; round < 200; ++round) {
      Communicator made = round % 3 == 0 ? group.dup() : round % 3 == 1 ? group.split(0) : group.new_group(all);
      const bool fails = group.rank() == round / 9 % 3;
      if (round / 3 % 3 == 0) {
        float value = fails ? NAN : 1;
        expect(code_of([&] { made.all_reduce(&value, &value, 1, DType::kFloat32); }) == ErrorCode::kNotFinite, "NaN");
      } else if (round / 3 % 3 == 1) {
        expect(code_of([&] { made.commit(0, fails ? 5 : 7); }) == ErrorCode::kCorrupt, "digests that differ");
      } else {
        if (fails) made.abort("at once");
        expect_error([&] { made.barrier(); }, ErrorCode::kAborted, "at once");
        group.barrier();
      }
      expect(!group.error(), "what it was made of has failed");
    }
  };
  CHECK(run_over_both(shape, body) == "");
  CHECK(run_threads(shape, body) == "");
}

TEST_CASE("a group that is made without a wait, in another order on each rank, and left without one") {
  CHECK(run_everywhere(3, [](Communicator& group) {
          constexpr uint64_t kSeries = 4;
          constexpr int kTurns = 20;
          const int all[] = {2, 0, 1}, own[] = {group.rank()};
          const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
          std::vector<Communicator> left;
          for (int turn = 0; turn < kTurns; ++turn) {
            std::vector<std::pair<Communicator, Work>> made(kSeries);
            for (uint64_t i = 0; i < kSeries; ++i) {
              const uint64_t series = (i + static_cast<uint64_t>(group.rank() + turn)) % kSeries;
              made[series] = group.new_group_async(all, series);
            }
            for (auto& [one, opened] : made) {
              opened.wait();
              expect(one.rank() == (group.rank() + 1) % 3, "its rank");
              if (turn % 2 == 0) expect_works(one, "made without a wait");
            }
            // The last that was made goes first on one rank, and last on another.
            for (uint64_t i = 0; i < kSeries; ++i)
              left.push_back(std::move(made[group.rank() == 0 ? kSeries - 1 - i : i].first));
            std::erase_if(left, [](Communicator& one) { return one.try_destroy(); });
          }
          // Nobody waits for these, and some are left before others have made them.
          for (int turn = 0; turn < kTurns; ++turn) left.push_back(group.new_group_async(all, 7).first);
          auto [alone, opened] = group.new_group_async(own, 7);
          expect(!opened.valid(), "there is nothing to wait for");
          expect_works(alone, "alone");
          while (!left.empty() && std::chrono::steady_clock::now() < until) {
            std::erase_if(left, [](Communicator& one) { return one.try_destroy(); });
          }
          expect(left.empty(), "all have left");
          expect_works(group, "what they were made of");
        }) == "");
}

TEST_CASE("a message that was sent before its communicator is left comes") {
  CHECK(run_everywhere(2, [](Communicator& group) {
          for (const uint64_t bytes : {uint64_t{8}, uint64_t{100'000}, uint64_t{4'000'000}}) {
            Communicator copy = group.dup();
            std::vector<uint8_t> data(bytes, static_cast<uint8_t>(group.rank() == 0 ? 7 : 0));
            if (group.rank() == 0) {
              Work send = copy.send_async(data.data(), bytes, DType::kUint8, 1);
              group.barrier();
              send.wait();
              while (!copy.try_destroy()) {
              }
            } else {
              group.barrier();
              copy.recv(data.data(), bytes, DType::kUint8, 0);
              expect(data == std::vector<uint8_t>(bytes, 7), "what was sent");
              while (!copy.try_destroy()) {
              }
            }
          }
        }) == "");
}

TEST_CASE("a communicator fails alone, whatever it fails of") {
  const auto fails = [](ErrorCode wanted, const std::function<void(Communicator&)>& call) {
    return [=](Communicator& group) {
      Communicator copy = group.dup(), other = group.dup();
      Work under_way = other.barrier_async();
      under_way.wait();
      const auto go_on = [&] {
        for (int i = 0; i < 1000; ++i) copy.barrier();
      };
      expect(code_of([&] { call(copy), go_on(); }) == wanted, std::string("it fails with ") + error_code_name(wanted));
      expect(code_of(go_on) == wanted && copy.error(), "and stays failed");
      expect(!group.error() && !other.error(), "the others have not failed");
      expect_works(group, "the first");
      expect_works(other, "a third");
      Communicator late = group.dup();
      expect_works(late, "one that is made afterwards");
      copy.destroy();
      expect_works(other, "a third, after the failed one has gone");
    };
  };
  SUBCASE("ranks that make different calls") {
    CHECK(run_everywhere(3, fails(ErrorCode::kMismatch, [](Communicator& group) {
                           std::array<int64_t, 3> values{};
                           group.all_reduce(values.data(), values.data(), group.rank() == 1 ? 3 : 2, kInt64);
                         })) == "");
  }
  SUBCASE("a message that does not fit") {
    CHECK(run_everywhere(3, fails(ErrorCode::kMismatch, [](Communicator& group) {
                           std::array<int64_t, 3> values{};
                           if (group.rank() == 0) group.send(values.data(), 3, kInt64, 1);
                           if (group.rank() == 1) group.recv(values.data(), 2, kInt64, 0);
                         })) == "");
  }
  SUBCASE("abort()") {
    CHECK(run_everywhere(3, fails(ErrorCode::kAborted, [](Communicator& group) {
                           if (group.rank() == 2) group.abort("enough");
                         })) == "");
  }
  SUBCASE("a call that one rank does not make in time") {
    CHECK(run_everywhere(3, fails(ErrorCode::kTimeout, [](Communicator& group) {
                           CallOptions soon;
                           soon.timeout = std::chrono::milliseconds(200);
                           int64_t value = 0;
                           if (group.rank() == 0) group.recv(&value, 1, kInt64, 1, 0, soon);
                         })) == "");
  }
}

TEST_CASE("shrink() waits for the longest time that can be said") {
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          group = group.shrink(std::chrono::milliseconds::max());
          group.barrier();
        }) == "");
}

TEST_CASE("the memory that recoverable calls run in is given back with each epoch") {
  constexpr size_t kBytes = 16 << 20;
  CHECK(run_threads(RankGroup{.world = 2}, [](Communicator& group) {
          std::vector<uint8_t> data(kBytes, 1);
          CallOptions options;
          options.recoverable = true;
          for (int i = 0; i < 4; ++i) {
            const size_t before = Resources::now().resident_bytes;
            group = group.shrink();
            group.all_reduce(data.data(), data.data(), data.size(), DType::kUint8, Op::kMax, options);
            const size_t after = Resources::now().resident_bytes;
            expect(i == 0 || after < before + kBytes / 2, "memory of the epoch before is still there");
            code_of([&] { group.barrier(); });  // the other may be in shrink() before this one is out of it
          }
        }) == "");
}

}  // namespace rondo::testing
