// Asynchronous messages and the progress thread: it keeps out of the way of a rank that waits for its messages by
// itself, and takes over soon from one that computes. Ranks as processes.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kInFlight = 64;

// How often this process's progress thread has gone to sleep.
int64_t sleeps_of_progress_thread() {
  int64_t sleeps = 0;
  for (const std::string& status : status_of_threads("rondo-progress")) {
    sleeps = std::stoll(field_of(status, "voluntary_ctxt_switches:"));
  }
  return sleeps;
}

// kInFlight messages each way, of `bytes`; all of them are waited for.
void burst(Communicator& group, std::vector<uint8_t>& out, std::vector<uint8_t>& in, uint64_t bytes, uint8_t value) {
  const int peer = 1 - group.rank();
  out.assign(kInFlight * bytes, value);
  in.assign(kInFlight * bytes, 0);
  std::vector<Work> works;
  for (uint64_t i = 0; i < kInFlight; ++i) {
    works.push_back(group.recv_async(in.data() + i * bytes, bytes, DType::kUint8, peer, static_cast<int>(i)));
  }
  for (uint64_t i = 0; i < kInFlight; ++i) {
    works.push_back(group.send_async(out.data() + i * bytes, bytes, DType::kUint8, peer, static_cast<int>(i)));
  }
  for (Work& work : works) work.wait();
  expect(in == std::vector<uint8_t>(kInFlight * bytes, value),
         [&] { return fmt::format("messages of {} bytes", bytes); });
}

void compute(std::chrono::microseconds time) {
  const auto start = Clock::now();
  while (Clock::now() - start < time) {
  }
}

// A halo exchange: receives are posted, messages are sent by blocking calls, and what comes is used one by one.
void exchange(Communicator& group, const std::vector<uint8_t>& out, std::vector<uint8_t>& in, uint64_t bytes) {
  const int peer = 1 - group.rank();
  std::vector<Work> receives;
  for (int side = 0; side < 2; ++side) {
    receives.push_back(
        group.recv_async(in.data() + static_cast<uint64_t>(side) * bytes, bytes, DType::kUint8, peer, side));
  }
  for (int side = 0; side < 2; ++side) group.send(out.data(), bytes, DType::kUint8, peer, side);
  for (Work& receive : receives) {
    receive.wait();
    compute(std::chrono::microseconds(300));
  }
}

}  // namespace

TEST_CASE("messages that a rank waits for do not wake its progress thread") {
  CHECK(run_over_both({}, [](Communicator& group) {
          std::vector<uint8_t> out, in;
          for (int i = 0; i < 20; ++i) burst(group, out, in, 8, static_cast<uint8_t>(i));
          // It looks each 250 us at most, each 3 ms in the long run, whatever the rank does. Beside other programs it
          // may sleep for a lock, too, but not in three rounds.
          for (const uint64_t bytes : {8, 1000, 300'000}) {
            const int bursts = bytes > 1000 ? 10 : 1000;
            uint8_t left_alone = 0, all_left_alone = 0;
            std::string said;
            for (int round = 0; round < 3 && all_left_alone == 0; ++round) {
              const int64_t before = sleeps_of_progress_thread();
              const auto start = Clock::now();
              for (int i = 0; i < bursts; ++i) burst(group, out, in, bytes, static_cast<uint8_t>(i));
              const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
              const int64_t sleeps = sleeps_of_progress_thread() - before;
              if (sleeps <= us / 250 + 20) left_alone = 1;
              group.all_reduce(&left_alone, &all_left_alone, 1, DType::kUint8, Op::kMin);
              said += fmt::format("{} sleeps in {} us; ", sleeps, us);
            }
            expect(left_alone == 1, [&] { return fmt::format("{} bytes: {}", bytes, said); });
          }
        }) == "");
}

// A program that computes between its exchanges, and receives what is short.
TEST_CASE("a rank that computes after its short messages is left alone") {
  CHECK(run_over_both({}, [](Communicator& group) {
          constexpr int kSteps = 100;
          std::vector<uint8_t> out, in;
          for (int i = 0; i < 20; ++i) burst(group, out, in, 8, static_cast<uint8_t>(i));
          int64_t sleeps = 0;
          for (int i = 0; i < kSteps; ++i) {
            burst(group, out, in, 8, static_cast<uint8_t>(i));
            const int64_t before = sleeps_of_progress_thread();
            compute(std::chrono::milliseconds(5));
            sleeps += sleeps_of_progress_thread() - before;
          }
          // It looks once or twice more; 20 looks would fit in.
          expect(sleeps <= 4 * kSteps, [&] { return fmt::format("{} sleeps in {} steps", sleeps, kSteps); });
        }) == "");
}

TEST_CASE("a rank that computes between halo exchanges is left alone") {
  CHECK(run_over_both({}, [](Communicator& group) {
          constexpr int kSteps = 200;
          for (const uint64_t bytes : {uint64_t{1'000}, uint64_t{30'000}, uint64_t{64 * 1024}}) {
            std::vector<uint8_t> out(bytes, 5), in(2 * bytes);
            // In the long run the thread looks each 3 ms. Beside other programs it may sleep for a lock, too, but
            // not in all rounds.
            double least = 1e9;
            for (int round = 0; round < 10 && least >= 500; ++round) {
              const int64_t before = sleeps_of_progress_thread();
              const auto start = Clock::now();
              for (int step = 0; step < kSteps; ++step) exchange(group, out, in, bytes);
              const std::chrono::duration<double> seconds = Clock::now() - start;
              double most = static_cast<double>(sleeps_of_progress_thread() - before) / seconds.count();
              group.all_reduce(&most, &most, 1, DType::kFloat64, Op::kMax);
              least = std::min(least, most);
            }
            expect(in == std::vector<uint8_t>(2 * bytes, 5), "what came");
            expect(least < 500, [&] { return fmt::format("{} sleeps a second beside {} bytes", least, bytes); });
          }
        }) == "");
}

TEST_CASE("messages end while both ranks compute, also right after others that they waited for") {
  CHECK(run_over_both({}, [](Communicator& group) {
          const int peer = 1 - group.rank();
          std::vector<uint8_t> out, in;
          for (const uint64_t bytes : {uint64_t{8}, uint64_t{100'000}, uint64_t{20'000'000}}) {
            for (int round = 0; round < 30; ++round) {
              if (round % 2 == 0) burst(group, out, in, 8, 1);
              const std::vector<uint8_t> sent(bytes, static_cast<uint8_t>(round));
              std::vector<uint8_t> came(bytes, 255);
              std::atomic<int> ended{0};
              const auto count = [&](const Error& error) { ended += error.ok() ? 1 : 101; };
              Work receive = group.recv_async(came.data(), bytes, DType::kUint8, peer);
              receive.on_end(count);
              Work send = group.send_async(sent.data(), bytes, DType::kUint8, peer);
              send.on_end(count);
              // Each ends, by its deadline at the latest: what they write to must not go before.
              while (ended % 100 < 2) {
              }
              expect(ended == 2, [&] { return fmt::format("{} bytes did not end in round {}", bytes, round); });
              expect(came == sent, [&] { return fmt::format("{} bytes in round {}", bytes, round); });
            }
          }
        }) == "");
}

// Rank 1 sends by blocking calls, far more pieces than lie between two ranks, and rank 0 waits for something else
// meanwhile.
TEST_CASE("a rank that waits for a collective, or in another group, takes messages in") {
  for (const bool posted : {true, false}) {
    for (const uint64_t bytes : {uint64_t{8}, uint64_t{1'000}, uint64_t{100'000}}) {
      for (const bool collective : {true, false}) {
        CAPTURE(posted);
        CAPTURE(bytes);
        CAPTURE(collective);
        CHECK(run_over_both({}, [&](Communicator& group) {
                const size_t count = std::min<size_t>((posted ? 5'000'000 : 400'000) / bytes, 1'000);
                Communicator other = group.split(0);
                std::vector<uint8_t> sent(bytes, 3), came(count * bytes), word(1);
                std::vector<Work> receives;
                const auto receive = [&] {
                  for (size_t i = 0; i < count; ++i) {
                    receives.push_back(group.recv_async(came.data() + i * bytes, bytes, DType::kUint8, 1));
                  }
                };
                if (group.rank() == 0 && posted) receive();
                for (size_t i = 0; group.rank() == 1 && i < count; ++i)
                  group.send(sent.data(), bytes, DType::kUint8, 0);
                if (collective) {
                  group.barrier();
                } else if (group.rank() == 0) {
                  other.recv(word.data(), 1, DType::kUint8, 1);
                } else {
                  other.send(word.data(), 1, DType::kUint8, 0);
                }
                if (group.rank() == 0 && !posted) receive();
                for (Work& work : receives) work.wait();
                if (group.rank() == 0) expect(came == std::vector<uint8_t>(count * bytes, 3), "the messages");
              }) == "");
      }
    }
  }
}

TEST_CASE("done() makes progress: operations end without a wait, and without the progress thread's help") {
  CHECK(run_over_both({}, [](Communicator& group) {
          const int peer = 1 - group.rank();
          for (int round = 0; round < 300; ++round) {
            std::vector<uint8_t> sent(round % 3 == 0 ? 300'000 : 100, 7), came(sent.size());
            Work receive = group.recv_async(came.data(), came.size(), DType::kUint8, peer);
            Work send = group.send_async(sent.data(), sent.size(), DType::kUint8, peer);
            Work sum = group.all_reduce_async(&round, &round, 1, DType::kInt32, Op::kMax);
            const auto until = Clock::now() + std::chrono::seconds(20);
            while (!(receive.done() && send.done() && sum.done())) expect(Clock::now() < until, "they end");
            expect(came == sent, "the message");
          }
        }) == "");
}

// Rank 1 sends by blocking calls, more pieces than lie between two ranks, before it receives what rank 0 asks about:
// rank 0 must take them in, though no receive waits for them, as a rank that waits does.
TEST_CASE("done() takes in messages of its own communicator that no receive waits for") {
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{1'000}, uint64_t{100'000}}) {
    CAPTURE(bytes);
    CHECK(run_over_both({}, [&](Communicator& group) {
            const size_t count = std::min<size_t>(400'000 / bytes, 1'000);
            std::vector<uint8_t> sent(bytes, 3), came(count * bytes), large(300'000, 7);
            if (group.rank() == 1) {
              for (size_t i = 0; i < count; ++i) group.send(sent.data(), bytes, DType::kUint8, 0);
              group.recv(large.data(), large.size(), DType::kUint8, 0);
              return;
            }
            Work work = group.send_async(large.data(), large.size(), DType::kUint8, 1);
            const auto until = Clock::now() + std::chrono::seconds(20);
            while (!work.done()) expect(Clock::now() < until, "the send ends");
            for (size_t i = 0; i < count; ++i) group.recv(came.data() + i * bytes, bytes, DType::kUint8, 1);
            expect(came == std::vector<uint8_t>(count * bytes, 3), "the messages");
          }) == "");
  }
}

// Their operations are used again: a Work that is kept must not see the next message's end.
TEST_CASE("a Work that is kept for long says what its own message was") {
  RankGroup shape;
  CHECK(run_processes(shape, [](Communicator& group) {
          const int peer = 1 - group.rank();
          std::vector<std::pair<Work, int>> kept;
          std::vector<uint32_t> in(1500), out(1500);
          for (int i = 0; i < 1500; ++i) {
            out[static_cast<size_t>(i)] = static_cast<uint32_t>(i);
            Work work = group.recv_async(&in[static_cast<size_t>(i)], 1, DType::kUint32, peer, i);
            expect(!kept.empty() || !work.done() || work.message().tag == i, "its tag");
            if (i % 3 != 0 || i > 1200) kept.emplace_back(work, i);
            group.send(&out[static_cast<size_t>(i)], 1, DType::kUint32, peer, i);
            work.wait();
            for (const auto& [old, tag] : kept) {
              if (tag % 50 == 1) expect(old.done() && old.message().tag == tag, "what it was");
            }
          }
          expect(in == out, "the messages");
          group.destroy();
          for (const auto& [old, tag] : kept) expect(old.done() && old.message().tag == tag, "what it was, at the end");
        }) == "");
}

TEST_CASE("memory of many messages in flight is given back") {
  constexpr size_t kMany = 20'000;
  RankGroup shape;
  CHECK(run_processes(shape, [](Communicator& group) {
          const int peer = 1 - group.rank();
          std::vector<uint32_t> in(kMany), out(kMany, 3);
          const auto exchange = [&](size_t messages) {
            std::vector<Work> works;
            works.reserve(messages);
            for (size_t i = 0; i < messages; ++i) {
              works.push_back(group.recv_async(&in[i], 1, DType::kUint32, peer, static_cast<int>(i)));
            }
            for (size_t i = 0; i < messages; ++i) {
              works.push_back(group.send_async(&out[i], 1, DType::kUint32, peer, static_cast<int>(i)));
            }
            for (Work& work : works) work.wait();
            works.clear();
            group.barrier();
          };
          exchange(100);
          const size_t before = ::mallinfo2().uordblks;
          exchange(kMany);
          const size_t after = ::mallinfo2().uordblks;
          expect(after <= before + 2'000'000, [&] { return fmt::format("{} bytes became {}", before, after); });
          expect(in == out, "the messages");
        }) == "");
}

}  // namespace rondo::testing
