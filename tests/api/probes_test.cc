// Probes, matched receives, cancel, truncation at the receiver, and synchronous sends, over every transport: what MPI's
// programs need of messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Numbers = std::vector<int64_t>;
constexpr DType kInt64 = DType::kInt64;
// One of 8 bytes, and one that waits to be asked for.
constexpr uint64_t kCounts[] = {1, 100'000};

void expect_found(const Message& found, int tag, uint64_t bytes) {
  expect(found.peer == 0 && found.tag == tag && found.bytes == bytes, "from " + std::to_string(found.peer) + ", tag " +
                                                                          std::to_string(found.tag) + ", " +
                                                                          std::to_string(found.bytes) + " bytes");
}

Message awaited(Communicator& group, int peer, int tag) {
  for (;;) {
    if (const std::optional<Message> found = group.iprobe(peer, tag)) return *found;
  }
}

}  // namespace

// tests/p2p/p2p_test.cc has each of them with messages of every kind and order.
TEST_CASE("each form of a probe, cancel, truncation and a synchronous send work over every transport") {
  CHECK(run_everywhere(2, [](Communicator& group) {
          const CallOptions soon{.timeout = std::chrono::milliseconds(20)};
          const CallOptions synchronous{.synchronous = true}, truncate{.truncate = true};
          for (const uint64_t count : kCounts) {
            const uint64_t bytes = 8 * count;
            Numbers numbers(count, group.rank() == 0 ? 3 : -1), untouched(count, -1);
            if (group.rank() == 0) {
              group.barrier();
              std::vector<Work> sends;
              for (int tag = 1; tag <= 5; ++tag) sends.push_back(group.send_async(numbers, 1, tag));
              Work last = group.send_async(numbers, 1, 6, synchronous);
              expect(!sends[0].cancel(), "sends go on");
              wait_all(sends);
              expect(!last.wait(std::chrono::milliseconds(2)), "before its receive");
              group.barrier();
              last.wait();
              continue;
            }
            expect_error([&] { group.probe(0, 1, soon); }, ErrorCode::kTimeout, "probe(from rank 0, tag 1) on rank 1");
            expect_error([&] { group.mprobe_async(kAnySource, 1, soon).wait(); }, ErrorCode::kTimeout, "any rank");
            for (Work unmet : {group.probe_async(0, 1), group.recv_async(untouched, 0, 1)}) {
              std::atomic<int> ended{0};
              unmet.on_end([&](const Error& error) { ended = error.code == ErrorCode::kCancelled ? 1 : -1; });
              expect(!unmet.wait(std::chrono::milliseconds(5)) && unmet.cancel() && !unmet.cancel(), "once");
              expect_error([&] { unmet.wait(); }, ErrorCode::kCancelled, "from rank 0, tag 1) was taken back");
              while (ended == 0) std::this_thread::yield();
              expect(ended == 1, "the end function hears of it");
            }
            group.barrier();
            expect_found(group.probe(0, 1), 1, bytes);
            Work probe = group.probe_async(kAnySource, 1);
            probe.wait();
            expect_found(probe.message(), 1, bytes);
            const Message first = group.mprobe(0, 2);
            probe = group.mprobe_async(kAnySource, 3);
            probe.wait();
            const Message second = probe.message();
            expect_found(second, 3, bytes);
            std::optional<Message> third;
            while (!third) third = group.improbe(0, 4);
            for (const Message& matched : {*third, first}) {
              expect_found(group.mrecv(numbers.data(), count, kInt64, matched.matched), matched.tag, bytes);
            }
            Work receive = group.mrecv_async(numbers.data(), count, kInt64, second.matched);
            receive.wait();
            expect(!receive.cancel(), "it has ended");
            expect_found(receive.message(), 3, bytes);
            for (const uint64_t matched : {first.matched, uint64_t{1} << 40}) {
              expect_error([&] { group.mrecv(numbers.data(), count, kInt64, matched); }, ErrorCode::kInvalid, "once");
            }
            expect_found(awaited(group, 0, kAnyTag), 1, bytes);
            expect_found(group.recv(numbers, 0, 1), 1, bytes);
            expect(numbers == Numbers(count, 3) && untouched == Numbers(count, -1), "the message");
            numbers.back() = -1;
            expect_error([&] { group.recv(numbers.data(), count - 1, kInt64, kAnySource, 5, truncate); },
                         ErrorCode::kTruncated, "sent " + std::to_string(bytes) + " bytes with tag 5");
            expect(numbers.back() == -1, "nothing lies behind the buffer");
            expect_found(group.probe(0, 6), 6, bytes);
            group.barrier();
            expect_found(group.recv(numbers, 0, 6), 6, bytes);
            expect(!group.iprobe(0, kAnyTag), "a message that nobody sent");
          }
          Work barrier = group.barrier_async();
          expect(!barrier.cancel(), "collectives go on");
          barrier.wait();
          expect(!group.error(), "the communicator goes on");
        }) == "");
}

TEST_CASE("a matched message is that of one receive, also between threads") {
  CHECK(run_everywhere(2, [](Communicator& group) {
          constexpr int kMessages = 300, kThreads = 3;
          if (group.rank() == 0) {
            for (int i = 0; i < kMessages; ++i) group.send(Numbers(1 + i % 7, i), 1, 3);
            return group.barrier();
          }
          std::vector<std::atomic<int>> came(kMessages);
          std::atomic<int> left{kMessages};
          std::atomic<bool> wrong{false};
          run_in_threads(kThreads, [&](int thread) {
            while (left.load() > 0) {
              const std::optional<Message> found = group.improbe(thread == 0 ? kAnySource : 0, 3);
              if (!found) continue;
              left.fetch_sub(1);
              Numbers numbers(found->bytes / 8);
              const Message got = group.mrecv(numbers.data(), numbers.size(), kInt64, found->matched);
              if (got.bytes != found->bytes || got.tag != 3) wrong = true;
              for (const int64_t number : numbers) {
                if (number != numbers.front()) wrong = true;
              }
              came[static_cast<size_t>(numbers.front())].fetch_add(1);
            }
          });
          expect(!wrong, "a message was cut or mixed");
          expect(std::all_of(came.begin(), came.end(), [](const auto& times) { return times == 1; }), "each once");
          group.barrier();
        }) == "");
}

TEST_CASE("probes and cancel answer at once while another thread waits for a message, and sleeps") {
  CHECK(run_everywhere(2, [](Communicator& group) {
          if (group.rank() == 0) {
            int64_t go = 0;
            group.recv(&go, 1, kInt64, 1, 1);
            return group.send(&go, 1, kInt64, 1, 2);
          }
          std::atomic<bool> came{false};
          std::thread waits([&] {
            int64_t number = 0;
            group.recv(&number, 1, kInt64, 0, 2);
            came = true;
          });
          int64_t unmet = 0;
          // For as long as a wait polls, and then sleeps.
          const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
          while (std::chrono::steady_clock::now() < until) {
            expect(!group.iprobe(0, 3) && !group.improbe(kAnySource, 4), "nothing has come");
            Work receive = group.recv_async(&unmet, 1, kInt64, 0, 5);
            expect(receive.cancel(), "taken back");
          }
          expect(!came, "the other thread still waits");
          const int64_t go = 1;
          group.send(&go, 1, kInt64, 0, 1);
          waits.join();
        }) == "");
}

TEST_CASE("what a probe, a matched receive and their options do not take is refused before anything happens") {
  CHECK(run_threads(RankGroup{.world = 1}, [](Communicator& group) {
          int64_t number = 4, got = -1;
          CallOptions synchronous, truncate, wrong;
          synchronous.synchronous = truncate.truncate = true;
          wrong.timeout = std::chrono::milliseconds(-1);
          const auto refused = [](const char* words, const std::function<void()>& call) {
            expect_error(call, ErrorCode::kInvalid, words);
          };
          refused("source is 3", [&] { group.probe(3, 0); });
          refused("tag is -2", [&] { group.iprobe(0, -2); });
          refused("timeout is -1", [&] { group.mprobe(0, 0, wrong); });
          refused("matched is 0", [&] { group.mrecv(&got, 1, kInt64, 0); });
          refused("synchronous is an option of sends", [&] { group.recv(&got, 1, kInt64, 0, 0, synchronous); });
          refused("truncate is an option of receives", [&] { group.send(&number, 1, kInt64, 0, 0, truncate); });
          refused("is no probe", [&] { group.look({.kind = MessageKind::kSend, .peer = 0}); });
          refused("its count must be 0", [&] { group.run({.kind = MessageKind::kProbe, .count = 1, .peer = 0}); });
          refused("unknown", [&] { group.run({.kind = static_cast<MessageKind>(9), .peer = 0}); });
          const BatchScope batch(group);
          refused("not in a batch", [&] { group.probe(0, 0); });
          Work receive = group.recv_async(&got, 1, kInt64, 0, 1);
          refused("batch_end", [&] { receive.cancel(); });
          refused("no operation", [&] { Work().cancel(); });
        }) == "");
}

TEST_CASE("probes end with the rank that they name, and with the communicator") {
  CHECK(run_everywhere(2, [](Communicator& group) {
          if (group.rank() == 0) return group.destroy();
          expect_error([&] { group.probe(0, 5); }, ErrorCode::kPeerLeft);
          expect_error([&] { awaited(group, 0, 5); }, ErrorCode::kPeerLeft);
          expect_error([&] { group.mprobe(kAnySource, kAnyTag); }, ErrorCode::kPeerLeft);
        }) == "");
  CHECK(run_everywhere(2, [](Communicator& group) {
          if (group.rank() == 0) return group.abort("enough");
          expect_error([&] { group.mprobe(0, 5); }, ErrorCode::kAborted, "enough");
          expect_error([&] { group.iprobe(0, 5); }, ErrorCode::kAborted, "enough");
        }) == "");
}

}  // namespace rondo::testing
