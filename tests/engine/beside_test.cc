// Messages and calls beside each other: of several threads, in the background, in a forked child, at the end.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/eventually.h"
#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr DType kBytes = DType::kUint8;

}  // namespace

TEST_CASE("a send of 64 MiB that nobody has received yet holds up no later collective") {
  // Proves: collectives and messages have links of their own.
  constexpr size_t kHuge = 64u << 20;
  CHECK(run_everywhere(2, [](Communicator& group) {
          std::vector<std::byte> huge(kHuge, static_cast<std::byte>(group.rank() + 1));
          std::vector<int64_t> sum(100'000, 1);
          Work unreceived;
          if (group.rank() == 0) unreceived = group.send_async(huge.data(), kHuge, kBytes, 1, 5);
          for (int i = 0; i < 5; ++i) {
            expect(!unreceived.valid() || !unreceived.done(), "64 MiB were sent although nobody has received them");
            group.all_reduce(sum);
          }
          expect(sum == std::vector<int64_t>(100'000, 32), "all_reduce");
          if (group.rank() == 1) group.recv(huge.data(), kHuge, kBytes, 0, 5);
          if (group.rank() == 0) unreceived.wait();
          expect(huge == std::vector<std::byte>(kHuge, std::byte{1}), "the message");
        }) == "");
}

TEST_CASE("blocking messages beside a collective that waits: no mismatch, and both end well") {
  // Proves: rank 1 sleeps in a receive for longer than the others take to ask twice; rank 0 is in the collective that
  // rank 1 has not called, and has a second thread that sends.
  Config config = RankGroup::quiet_config();
  config.stall_ms = 20;
  std::vector<Communicator> ranks = Communicator::inproc(2, config);
  float sums[2] = {1, 1};
  ErrorCode in_sum = ErrorCode::kInternal, in_recv = ErrorCode::kInternal;
  std::thread collective(
      [&] { in_sum = code_of([&] { ranks[0].all_reduce(&sums[0], &sums[0], 1, DType::kFloat32); }); });
  std::thread other([&] {
    in_recv = code_of([&] {
      int value = 0;
      for (int i = 0; i < 3; ++i) {
        ranks[1].recv(&value, 1, DType::kInt32, 0);
        ranks[1].send(&value, 1, DType::kInt32, 0);
      }
      ranks[1].all_reduce(&sums[1], &sums[1], 1, DType::kFloat32);
    });
  });
  const auto began = Clock::now();
  for (int i = 1; i <= 3; ++i) {
    // Another message meanwhile, to itself: this thread is in calls, not in a sleep.
    for (int own = 0; Clock::now() < began + i * 300ms;) ranks[0].sendrecv(&i, 1, 0, &own, 1, 0, DType::kInt32);
    int answer = 0;
    ranks[0].send(&i, 1, DType::kInt32, 1);
    ranks[0].recv(&answer, 1, DType::kInt32, 1);
    CHECK(answer == i);
  }
  collective.join();
  other.join();
  CHECK(in_sum == ErrorCode::kOk);
  CHECK(in_recv == ErrorCode::kOk);
  CHECK(sums[0] == 2);
  CHECK(sums[1] == 2);
}

TEST_CASE("a batch of messages alone that waits for a rank in a collective is a mismatch, told soon") {
  std::vector<Communicator> ranks = Communicator::inproc(2, RankGroup::quiet_config());
  const auto began = Clock::now();
  ErrorCode other = ErrorCode::kOk;
  std::thread in_barrier([&] { other = code_of([&] { ranks[1].barrier(); }); });
  int value = 0;
  CHECK(code_of([&] {
          BatchScope calls(ranks[0]);
          ranks[0].recv(&value, 1, DType::kInt32, 1);
          calls.end();
        }) == ErrorCode::kMismatch);
  in_barrier.join();
  CHECK(other == ErrorCode::kMismatch);
  CHECK(Clock::now() - began < 10s);
}

TEST_CASE("sendrecv that cannot send takes its receive back: the buffer is the caller's, the next message the next's") {
  std::vector<Communicator> ranks = Communicator::inproc(3, RankGroup::quiet_config());
  ranks[1].destroy();
  expect_error([&] { ranks[0].probe(1, 0); }, ErrorCode::kPeerLeft);  // the goodbye is here
  int sent = 1, received = -1, next = 0;
  CHECK(code_of([&] { ranks[0].sendrecv(&sent, 1, 1, &received, 1, 2, DType::kInt32); }) == ErrorCode::kPeerLeft);
  CHECK_FALSE(ranks[0].error().has_value());
  std::thread sender([&] {
    for (const int value : {777, 888}) ranks[2].send(&value, 1, DType::kInt32, 0);
  });
  ranks[0].recv(&next, 1, DType::kInt32, 2);
  CHECK(next == 777);
  ranks[0].recv(&next, 1, DType::kInt32, 2);
  CHECK(next == 888);
  CHECK(received == -1);
  sender.join();
}

TEST_CASE("calls that begin while another thread destroys the communicator end") {
  // Proves: messages that are submitted behind the end, too; at delays around the 10 ms that the batch takes.
  for (const auto delay : {0ms, 2ms, 5ms, 8ms, 12ms, 20ms, 40ms}) {
    std::vector<Communicator> ranks = Communicator::inproc(1, RankGroup::quiet_config());
    Communicator& group = ranks[0];
    std::vector<float> values(20'000);
    float other = 0;
    std::atomic<bool> collected{false}, ended{false};
    std::thread caller([&] {
      code_of([&] {
        group.batch_begin();
        for (float& value : values) group.all_reduce(&value, &value, 1, DType::kFloat32, Op::kPremulSum);
        group.recv_async(&other, 1, DType::kFloat32, 0);
        collected = true;
        group.batch_end();
      });
      collected = ended = true;
    });
    while (!collected) std::this_thread::yield();
    std::this_thread::sleep_for(delay);
    group.destroy();
    if (!eventually([&] { return ended.load(); })) {
      std::fprintf(stderr, "batch_end() has not returned 10 s after destroy()\n");
      _exit(1);
    }
    caller.join();
  }
}

TEST_CASE("a forked child cannot wait for what its parent has under way, nor be told of ends, however often it tries") {
  std::vector<Communicator> ranks = Communicator::inproc(2, RankGroup::quiet_config());
  int received = 0, later = 0, sent = 42;
  Work work = ranks[0].recv_async(&received, 1, DType::kInt32, 1);
  ranks[0].batch_begin();
  Work batch = ranks[0].batch_end_async();
  batch.wait();
  ranks[0].batch_begin();
  ranks[0].recv(&later, 1, DType::kInt32, 1);
  Work open = ranks[0].batch_end_async();
  std::atomic<bool> forked{false};
  std::thread asks([&] {  // and has the batch's lock at most times
    while (!forked) open.done();
  });
  const int ended = in_child([&] {
    alarm(20);
    const bool refused = code_of([&] { work.wait(1s); }) == ErrorCode::kInvalid &&
                         code_of([&] { work.wait(); }) == ErrorCode::kInvalid &&
                         code_of([&] { work.wait(1s); }) == ErrorCode::kInvalid && !open.done() &&
                         code_of([&] { open.wait(); }) == ErrorCode::kInvalid &&
                         code_of([&] { work.on_end([](const Error&) {}); }) == ErrorCode::kInvalid &&
                         code_of([&] { batch.on_end([](const Error&) {}); }) == ErrorCode::kInvalid;
    return refused ? 0 : 1;
  });
  forked = true;
  asks.join();
  CHECK(ended == 0);
  for (int i = 0; i < 2; ++i) ranks[1].send(&sent, 1, DType::kInt32, 0);
  work.wait();
  open.wait();
  CHECK(received == 42);
  CHECK(later == 42);
}

TEST_CASE("a send is under way at once though another thread sleeps in recv") {
  std::vector<Communicator> ranks = Communicator::inproc(2, RankGroup::quiet_config());
  int awaited = 0, value = 1;
  std::atomic<pid_t> sleeps{0};
  std::thread sleeper([&] {
    sleeps = gettid();
    ranks[0].recv(&awaited, 1, DType::kInt32, 1, 7);
  });
  REQUIRE(eventually([&] { return sleeps != 0; }));
  constexpr int kSends = 21;
  std::thread receiver([&] {
    int got = 0;
    for (int i = 0; i < kSends; ++i) ranks[1].recv(&got, 1, DType::kInt32, 0, 1);
  });
  std::vector<Clock::duration> took;
  for (int i = 0; i < kSends; ++i) {
    REQUIRE(eventually([&] { return state_of(sleeps) == 'S'; }));
    const auto begin = Clock::now();
    ranks[0].send(&value, 1, DType::kInt32, 1, 1);
    took.push_back(Clock::now() - begin);
  }
  std::sort(took.begin(), took.end());
  CHECK(took[kSends / 2] < 5ms);  // some 20 us; without a wake-up a sleep of up to 20 ms
  ranks[1].send(&value, 1, DType::kInt32, 0, 7);
  sleeper.join();
  receiver.join();
}

}  // namespace rondo::testing
