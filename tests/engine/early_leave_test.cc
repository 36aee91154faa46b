// What has ended well arrives, whoever leaves afterwards: a rank that is done sends its last and destroys its
// communicator.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/errors.h"
#include "tests/support/eventually.h"
#include "tests/support/rank_group.h"
#include "tests/support/resources.h"

namespace rondo::testing {
namespace {

// On a communicator that every rank has just made, and destroys when this returns.
using Course = std::function<void(Communicator& group, float value)>;

void expect_all(const std::vector<float>& values, float value) {
  expect(std::all_of(values.begin(), values.end(), [value](float one) { return one == value; }), "a wrong value");
}

void send_to_all(Communicator& group, float value, uint64_t count) {
  std::vector<float> values(count, value);
  if (group.rank() == 0) {
    for (int peer = 1; peer < group.size(); ++peer) group.send(values.data(), count, DType::kFloat32, peer, 3);
  } else {
    std::fill(values.begin(), values.end(), 0.0f);
    group.recv(values.data(), count, DType::kFloat32, 0, 3);
    expect_all(values, value);
  }
}

void broadcast(Communicator& group, float value, uint64_t count) {
  std::vector<float> values(count, group.rank() == 0 ? value : 0);
  group.broadcast(values.data(), count, DType::kFloat32, 0);
  expect_all(values, value);
}

void gather(Communicator& group, float value, uint64_t count) {
  const std::vector<float> own(count, value);
  std::vector<float> all(group.rank() == group.size() - 1 ? count * static_cast<uint64_t>(group.size()) : 0);
  group.gather(own.data(), all.data(), count, DType::kFloat32, group.size() - 1);
  expect_all(all, value);
}

// On four threads at once, so that goodbyes, handshakes and data cross. "" or what failed.
std::string leave_early(const Config& config, int rounds, const Course& course) {
  RankGroup shape{.world = 3};
  shape.config = config;
  return run_processes(shape, [&](Communicator& world) {
    constexpr int kThreads = 4;
    std::vector<Communicator> bases;
    for (int i = 0; i < kThreads; ++i) bases.push_back(world.split(0));
    run_in_threads(kThreads, [&](int i) {
      for (int round = 0; round < rounds; ++round) {
        const Error error = error_of([&] {
          Communicator group = bases[static_cast<size_t>(i)].split(0);
          course(group, static_cast<float>(round + 1));
          group.destroy();
        });
        expect(error.ok(), fmt::format("round {}: {}", round, error.message));
      }
    });
    for (Communicator& base : bases) base.destroy();
  });
}

// The process of that rank; called by all.
pid_t sender_of(Communicator& group, int rank) {
  int32_t process = ::getpid();
  group.broadcast(process, rank);
  return process;
}

// Meanwhile this rank computes: it looks at no message.
void expect_ended(pid_t process) {
  const auto ended = [&] { return state_of(process) == '\0' || state_of(process) == 'Z'; };
  expect(eventually(ended, 20'000), "the sender does not end");
}

// What the connections of this process have not delivered when they are closed is lost.
void reset_on_close() {
  for (int socket = 0; socket < 1024; ++socket) {
    const linger at_once{1, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
}

}  // namespace

TEST_CASE("messages, broadcasts and gathers of ranks that leave at once arrive, over TCP, sealed, in shared memory") {
  struct Way {
    const char* transport;
    bool encrypt;
    int rounds;
  };
  for (const Way& way : {Way{"tcp", false, 75}, Way{"tcp", true, 25}, Way{"auto", false, 25}}) {
    for (const uint64_t count : {100u, 50'000u}) {
      CAPTURE(way.transport);
      CAPTURE(way.encrypt);
      CAPTURE(count);
      Config config = RankGroup::quiet_config();
      config.transport = way.transport;
      config.encrypt = way.encrypt;
      const int rounds = count == 100 ? way.rounds : way.rounds / 5;
      for (const auto& course : {send_to_all, broadcast, gather}) {
        CHECK(leave_early(config, rounds, [&](Communicator& group, float value) { course(group, value, count); }) ==
              "");
      }
    }
  }
}

TEST_CASE("messages that fill the connection arrive whole at a rank that looks when their sender's process is gone") {
  // Proves: a sender that may not wait for its receiver (RONDO_DESTROY_TIMEOUT_MS) takes nothing back that was sent,
  // and the receiver's answers to it do not end what is still on its way.
  constexpr int kMessages = 15;
  constexpr uint64_t kCount = 16'000;  // 64,000 bytes: below the eager limit, all of them within the credit
  RankGroup shape = ranks_over("tcp");
  shape.config.destroy_timeout_ms = 200;
  CHECK(run_processes(shape, [&](Communicator& group) {
          std::vector<float> values(kCount, 0);
          const pid_t sender = sender_of(group, 0);
          if (group.rank() == 0) {
            for (int i = 1; i <= kMessages; ++i) {
              std::fill(values.begin(), values.end(), static_cast<float>(i));
              group.send(values.data(), kCount, DType::kFloat32, 1);
            }
            return;  // the process ends
          }
          expect_ended(sender);
          for (int i = 1; i <= kMessages; ++i) {
            group.recv(values.data(), kCount, DType::kFloat32, 0);
            expect_all(values, static_cast<float>(i));
          }
        }) == "");
}

TEST_CASE("a call whose data was lost behind its sender's goodbye fails soon, and names the sender") {
  constexpr uint64_t kCount = 1 << 17;  // 512 KiB: more than the root's kernel takes unread
  RankGroup shape = ranks_over("tcp");
  shape.config.destroy_timeout_ms = 200;
  CHECK(run_processes(shape, [&](Communicator& group) {
          const std::vector<float> own(kCount, 1);
          std::vector<float> all(2 * kCount);
          const pid_t sender = sender_of(group, 1);
          if (group.rank() == 1) {
            group.gather(own.data(), nullptr, kCount, DType::kFloat32, 0);
            reset_on_close();
            return;  // the process ends
          }
          expect_ended(sender);
          const auto start = std::chrono::steady_clock::now();
          const Error error = error_of([&] { group.gather(own.data(), all.data(), kCount, DType::kFloat32, 0); });
          expect_error(error, ErrorCode::kPeerLost, "ended before all of its data had come");
          expect(error.ranks == std::vector<int>{1}, error.message);
          expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(5), "it took too long");
        }) == "");
}

}  // namespace rondo::testing
