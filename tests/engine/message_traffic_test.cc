// Blocking and asynchronous messages of several threads on one communicator: every byte arrives where it belongs, in
// order; and an abort ends blocking calls, whose operations lie on their stacks.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/random.h"
#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {
namespace {

constexpr DType kByte = DType::kUint8;
constexpr int kThreads = 3;
// Beyond the eager limit (64 KiB), and more than a ring of a stream holds.
constexpr uint64_t kLongest = 600'000;

// The size of message `round` of this tag from a rank: mostly short ones.
uint64_t size_of(int from, int tag, int round) {
  Random random(static_cast<uint64_t>(from * 1000 + tag * 100'000 + round));
  if (random.chance(60)) return random.below(300);
  return random.below(random.chance(20) ? kLongest : 70'000);
}

std::byte byte_of(int from, int tag, int round, uint64_t i) {
  return static_cast<std::byte>((static_cast<uint64_t>(from * 31 + tag * 7 + round) + i) * 2654435761u >> 11);
}

std::vector<std::byte> message_of(int from, int tag, int round) {
  std::vector<std::byte> data(size_of(from, tag, round));
  for (uint64_t i = 0; i < data.size(); ++i) data[i] = byte_of(from, tag, round, i);
  return data;
}

void expect_message(const std::vector<std::byte>& got, const Message& said, int from, int tag, int round) {
  const auto want = message_of(from, tag, round);
  const bool right = said.peer == from && said.tag == tag && said.bytes == want.size() &&
                     std::equal(want.begin(), want.end(), got.begin());
  expect(right, fmt::format("round {} from {}, tag {}: {} bytes from {}, tag {}, or wrong ones", round, from, tag,
                            said.bytes, said.peer, said.tag));
}

// Around the ring, in one of four ways.
void exchange(Communicator& group, int tag, int round, std::vector<std::byte>& memory) {
  const int rank = group.rank();
  const int next = (rank + 1) % group.size(), before = (rank + group.size() - 1) % group.size();
  const auto out = message_of(rank, tag, round);
  Message said;
  switch (round % 4) {
    case 0:
      said = group.sendrecv(out.data(), out.size(), next, memory.data(), memory.size(), before, kByte, tag);
      break;
    case 1: {
      Work received = group.recv_async(memory.data(), memory.size(), kByte, before, tag);
      group.send(out.data(), out.size(), kByte, next, tag);
      received.wait();
      said = received.message();
      break;
    }
    case 2: {
      Work sent = group.send_async(out.data(), out.size(), kByte, next, tag);
      said = group.recv(memory.data(), memory.size(), kByte, kAnySource, tag);
      sent.wait();
      break;
    }
    default:
      if (rank == 0) group.send(out.data(), out.size(), kByte, next, tag);
      said = group.recv(memory.data(), memory.size(), kByte, before, tag);
      if (rank != 0) group.send(out.data(), out.size(), kByte, next, tag);
  }
  expect_message(memory, said, before, tag, round);
}

void traffic(Communicator& group) {
  run_in_threads(kThreads, [&group](int tag) {
    std::vector<std::byte> memory(kLongest);
    for (int round = 0; round < 150; ++round) exchange(group, tag, round, memory);
  });
}

// One thread: a blocking call finds nothing else under way in most rounds.
void alone(Communicator& group) {
  std::vector<std::byte> memory(kLongest);
  for (int round = 0; round < 1000; ++round) exchange(group, 0, round, memory);
}

TEST_CASE("messages of three threads a rank, blocking and not, over shared memory, TCP and threads") {
  CHECK(run_processes(ranks_over("shm", 3), traffic) == "");
  CHECK(run_processes(ranks_over("tcp", 3), traffic) == "");
  CHECK(run_threads(ranks_over("auto", 3), traffic) == "");
}

TEST_CASE("messages of one thread a rank, blocking and not, over shared memory and TCP") {
  CHECK(run_processes(ranks_over("shm"), alone) == "");
  CHECK(run_processes(ranks_over("shm", 3), alone) == "");
  CHECK(run_processes(ranks_over("tcp"), alone) == "");
}

// The calls wait for messages that never come; the memory is the caller's again once they have thrown.
void aborted(Communicator& group) {
  std::atomic<int> ended{0};
  std::array<std::atomic<pid_t>, kThreads> callers{};
  std::thread aborts;
  if (group.rank() == 0) {
    aborts = std::thread([&] {
      eventually([&] {
        return std::all_of(callers.begin(), callers.end(), [](pid_t id) { return id != 0 && state_of(id) == 'S'; });
      });
      group.abort("enough");
    });
  }
  run_in_threads(kThreads, [&](int i) {
    callers[static_cast<size_t>(i)] = ::gettid();
    const int peer = (group.rank() + 1) % group.size();
    std::vector<std::byte> memory(kLongest);
    try {
      if (i == 0) group.send(memory.data(), memory.size(), kByte, peer, 7);
      if (i == 1) group.recv(memory.data(), memory.size(), kByte, kAnySource, 8);
      std::vector<std::byte> other(10);
      if (i == 2) group.sendrecv(memory.data(), memory.size(), peer, other.data(), other.size(), peer, kByte, 9);
    } catch (const Exception& e) {
      ended += e.code() == ErrorCode::kAborted ? 1 : 0;
    }
    std::memset(memory.data(), 0x55, memory.size());
  });
  if (aborts.joinable()) aborts.join();
  expect(ended == kThreads, fmt::format("{} of {} calls failed with kAborted", ended.load(), kThreads));
}

TEST_CASE("an abort ends blocking sends and receives") {
  CHECK(run_processes(ranks_over("shm", 3), aborted) == "");
  CHECK(run_threads(ranks_over("auto", 3), aborted) == "");
}

// Their Works refer to one operation, which counts its references many at a time.
TEST_CASE(
    "messages that were over when their calls returned: more than are counted at once, which outlive their group") {
  const auto body = [](Communicator& world) {
    constexpr size_t kMessages = 70'000, kKept = 3;  // 65,536 references at once; every third Work is kept
    Communicator group = world.split(0);
    const int peer = 1 - group.rank();
    std::vector<Work> kept;
    for (size_t i = 0; i < kMessages; ++i) {
      const auto out = static_cast<int64_t>(i);
      int64_t in = -1;
      Work sent = group.send_async(&out, 1, DType::kInt64, peer);
      group.recv(&in, 1, DType::kInt64, peer);
      sent.wait();
      if (i % kKept == 0) kept.push_back(std::move(sent));
      expect(in == out, [&] { return fmt::format("message {} is {}", out, in); });
    }
    group = {};
    const auto whole = [](const Work& work) { return work.done() && work.message().bytes == sizeof(int64_t); };
    expect(std::all_of(kept.begin(), kept.end(), whole), "each says what it has moved");
  };
  CHECK(run_processes(ranks_over("shm", 2), body) == "");
  CHECK(run_threads(ranks_over("auto", 2), body) == "");
}

}  // namespace
}  // namespace rondo::testing
