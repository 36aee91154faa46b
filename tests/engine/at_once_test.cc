// Short messages that are over when their asynchronous call returns: what such a call does not do, and what its Work
// is.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/eventually.h"
#include "tests/support/rank_group.h"

namespace {

// This thread's counters, while `counting`: locks taken, memory asked for, writes to descriptors, doorbells rung by a
// socket (the peer's, where it sleeps).
thread_local bool counting = false;
thread_local int locks = 0, allocations = 0, writes = 0, rings = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  allocations += counting ? 1 : 0;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto lock = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  locks += counting ? 1 : 0;
  return lock(mutex);
}

ssize_t write(int file, const void* data, size_t bytes) {
  writes += counting ? 1 : 0;
  return syscall(SYS_write, file, data, bytes);
}

ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  rings += counting ? 1 : 0;
  return syscall(SYS_sendto, socket, data, bytes, flags, nullptr, 0);
}

}  // extern "C"

namespace rondo::testing {
namespace {

// Whether the action took no lock, no memory and wrote nothing. Once in a while the progress thread has the lease.
template <typename Action>
bool takes_nothing(Action action) {
  locks = allocations = writes = 0;
  counting = true;
  action();
  counting = false;
  return locks == 0 && allocations == 0 && writes == 0;
}

void expect_over(const Work& work, const Message& message) {
  expect(work.valid() && work.done() && !work.error(), "over when the call returns");
  const Message got = work.message();
  expect(got.peer == message.peer && got.tag == message.tag && got.bytes == message.bytes,
         [&] { return fmt::format("peer {}, tag {}, {} bytes", got.peer, got.tag, got.bytes); });
}

constexpr int kMessages = 64;

}  // namespace

TEST_CASE("a short message takes no lock, no memory and no wake-up of this rank, however many are in flight") {
  // Proves: a send that fits, and a receive whose message is there, are over at once, from one rank and from any.
  RankGroup shape = ranks_over("shm");
  const RankBody body = [](Communicator& group) {
    const int peer = 1 - group.rank();
    constexpr int kRounds = 40;
    int took_nothing = 0;
    std::vector<int64_t> values(kMessages, -1);
    for (int round = 0; round < kRounds; ++round) {
      group.barrier();
      if (group.rank() == 1) group.barrier();  // all messages have been sent
      for (int i = 0; i < kMessages; ++i) {
        int64_t& value = values[static_cast<size_t>(i)];
        value = group.rank() == 0 ? 100 * round + i : -1;
        Work work;
        const bool nothing = takes_nothing([&] {
          work = group.rank() == 0 ? group.send_async(&value, 1, DType::kInt64, peer, i)
                                   : group.recv_async(&value, 1, DType::kInt64, i % 2 == 0 ? peer : kAnySource, i);
        });
        took_nothing += nothing ? 1 : 0;
        if (!nothing) work.wait();
        expect_over(work, {peer, i, 8});
        expect(value == 100 * round + i, "the message");
      }
      if (group.rank() == 0) group.barrier();
    }
    expect(2 * took_nothing > kRounds * kMessages,
           [&] { return fmt::format("{} of {} messages", took_nothing, kRounds * kMessages); });
  };
  CHECK(run_processes(shape, body) == "");
}

TEST_CASE("receives that are posted one after the other take no lock and no wake-up each") {
  // Proves: the progress thread is told of the first one; it looks after the others, or sleeps on the doorbell that the
  // sender rings.
  RankGroup shape = ranks_over("shm");
  const RankBody body = [](Communicator& group) {
    const int peer = 1 - group.rank();
    std::vector<int64_t> values(kMessages, -1);
    constexpr int kRounds = 20;
    rings = locks = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Work> works(kMessages);
      if (group.rank() == 1) {
        counting = true;
        for (size_t i = 0; i < kMessages; ++i) works[i] = group.recv_async(&values[i], 1, DType::kInt64, peer);
        counting = false;
      }
      group.barrier();
      for (size_t i = 0; i < kMessages && group.rank() == 0; ++i) {
        values[i] = round;
        works[i] = group.send_async(&values[i], 1, DType::kInt64, peer);
      }
      for (Work& work : works) work.wait();
      for (const int64_t value : values) expect(value == round, "the message");
    }
    expect(4 * rings <= kRounds * kMessages && 4 * locks <= kRounds * kMessages,
           [&] { return fmt::format("{} wake-ups and {} locks for {} receives", rings, locks, kRounds * kMessages); });
  };
  CHECK(run_processes(shape, body) == "");
}

TEST_CASE("messages that are over at once keep their place behind those that are not") {
  // Proves: a short message does not pass a long one to the same rank, nor a receive that was posted before.
  RankGroup shape;
  const RankBody body = [](Communicator& group) {
    const int peer = 1 - group.rank();
    constexpr size_t kLong = 300'000;
    constexpr int kRounds = 50, kEach = 8;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::vector<int32_t>> values;
      for (size_t i = 0; i < kEach; ++i)
        values.emplace_back(i % 3 == 1 ? kLong : 3, group.rank() == 0 ? round + static_cast<int>(i) : -1);
      std::vector<Work> works;
      for (auto& each : values) {
        works.push_back(group.rank() == 0 ? group.send_async(each.data(), each.size(), DType::kInt32, peer)
                                          : group.recv_async(each.data(), each.size(), DType::kInt32, peer));
      }
      for (Work& work : works) work.wait();
      for (size_t i = 0; i < kEach; ++i) {
        expect(values[i].front() == round + static_cast<int>(i) && values[i].back() == round + static_cast<int>(i),
               [&] { return fmt::format("round {}: message {} is {}", round, i, values[i].front()); });
      }
    }
  };
  CHECK(run_processes(shape, body) == "");
  CHECK(run_threads(shape, body) == "");
}

TEST_CASE(
    "the Work of a message that was over at once: functions are called, copies refer to it, it outlives its group") {
  RankGroup shape;
  const RankBody body = [](Communicator& world) {
    Communicator group = world.split(0);
    const int peer = 1 - group.rank();
    int64_t out = group.rank(), in = -1;
    group.sendrecv(&out, 1, peer, &in, 1, peer, DType::kInt64);  // opens the streams
    std::atomic<int> called{0};
    Work sent = group.send_async(&out, 1, DType::kInt64, peer, 5);
    sent.on_end([&](const Error& error) { called += error.ok() ? 1 : 100; });
    const Work copy = sent;
    group.recv(&in, 1, DType::kInt64, peer, 5);
    sent.wait();
    group = {};
    expect_over(copy, {peer, 5, 8});
    eventually([&] { return called.load() == 1; });
    expect(called.load() == 1, "the function is called once");
  };
  CHECK(run_processes(shape, body) == "");
  CHECK(run_threads(shape, body) == "");
}

}  // namespace rondo::testing
