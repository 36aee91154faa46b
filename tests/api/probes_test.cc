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
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Numbers = std::vector<int64_t>;
constexpr DType kInt64 = DType::kInt64;
// One of 8 bytes, and one that waits to be asked for.
constexpr uint64_t kCounts[] = {1, 100'000};

void expect_code(ErrorCode wanted, const std::function<void()>& call, const std::string& words = "") {
  try {
    call();
  } catch (const Exception& failure) {
    expect(failure.code() == wanted && std::string(failure.what()).find(words) != std::string::npos,
           std::string(error_code_name(failure.code())) + ": " + failure.what());
    return;
  }
  expect(false, std::string("no ") + error_code_name(wanted));
}

// Threads, processes of a host, and processes over TCP. "" or what went wrong.
std::string everywhere(int world, const RankBody& body) {
  RankGroup shape;
  shape.world = world;
  std::string wrong;
  for (const char* transport : {"shm", "tcp"}) {
    shape.config.transport = transport;
    wrong += run_processes(shape, body);
  }
  shape.config.transport = "auto";
  return wrong + run_threads(shape, body);
}

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

TEST_CASE("probes in every form find what a receive would take") {
  CHECK(everywhere(2, [](Communicator& group) {
          for (const uint64_t count : kCounts) {
            for (int round = 0; round < 20; ++round) {
              const int tag = 10 * round;
              Numbers numbers(count, round);
              if (group.rank() == 0) {
                Work other = group.send_async(numbers, 1, tag + 1);
                group.send(numbers, 1, tag);
                other.wait();
              } else {
                const int peer = round % 2 == 0 ? 0 : kAnySource;
                switch (round % 3) {
                  case 0:
                    expect_found(group.probe(peer, tag), tag, 8 * count);
                    break;
                  case 1: {
                    Work probe = group.probe_async(peer, tag);
                    probe.wait();
                    expect_found(probe.message(), tag, 8 * count);
                    break;
                  }
                  default:
                    expect_found(awaited(group, peer, tag), tag, 8 * count);
                }
                numbers.assign(count, -1);
                expect_found(group.recv(numbers, 0, tag), tag, 8 * count);
                expect(numbers == Numbers(count, round), "the message");
                expect_found(awaited(group, peer, kAnyTag), tag + 1, 8 * count);
                group.recv(numbers, 0, tag + 1);
              }
              expect(!group.iprobe(1 - group.rank(), kAnyTag), "a message that nobody sent");
              group.barrier();
            }
          }
        }) == "");
}

TEST_CASE("a matched message is that of one receive, also between threads") {
  CHECK(everywhere(2, [](Communicator& group) {
          constexpr int kMessages = 300, kThreads = 3;
          if (group.rank() == 0) {
            for (int i = 0; i < kMessages; ++i) group.send(Numbers(1 + i % 7, i), 1, 3);
            return group.barrier();
          }
          std::vector<std::atomic<int>> came(kMessages);
          std::atomic<int> left{kMessages};
          std::atomic<bool> wrong{false};
          const auto receive = [&](int thread) {
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
          };
          std::vector<std::thread> threads;
          for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(receive, thread);
          for (std::thread& thread : threads) thread.join();
          expect(!wrong, "a message was cut or mixed");
          expect(std::all_of(came.begin(), came.end(), [](const auto& times) { return times == 1; }), "each once");
          group.barrier();
        }) == "");
  CHECK(everywhere(2, [](Communicator& group) {
          for (const uint64_t count : kCounts) {
            Numbers numbers(count, 5);
            if (group.rank() == 0) {
              Work first = group.send_async(numbers, 1, 1), second = group.send_async(numbers, 1, 2);
              first.wait();
              second.wait();
              group.barrier();
              continue;
            }
            numbers.assign(count, -1);
            const Message first = group.mprobe(0, 1);
            Work probe = group.mprobe_async(kAnySource, kAnyTag);
            probe.wait();
            const Message second = probe.message();
            expect_found(second, 2, 8 * count);
            expect(!group.iprobe(0, kAnyTag), "matched messages are not seen");
            Work receive = group.mrecv_async(numbers.data(), count, kInt64, second.matched);
            expect_found(group.mrecv(numbers.data(), count, kInt64, first.matched), 1, 8 * count);
            receive.wait();
            expect_found(receive.message(), 2, 8 * count);
            expect(numbers == Numbers(count, 5), "the message");
            for (const uint64_t matched : {first.matched, uint64_t{1} << 40}) {
              expect_code(
                  ErrorCode::kInvalid, [&] { group.mrecv(numbers.data(), count, kInt64, matched); }, "once");
            }
            group.barrier();
          }
        }) == "");
}

TEST_CASE("a probe that waits in vain is given up, and the communicator goes on") {
  CHECK(everywhere(2, [](Communicator& group) {
          CallOptions soon;
          soon.timeout = std::chrono::milliseconds(20);
          if (group.rank() == 1) {
            expect_code(
                ErrorCode::kTimeout, [&] { group.probe(0, 5, soon); }, "probe(from rank 0, tag 5) on rank 1");
            expect_code(
                ErrorCode::kTimeout, [&] { group.mprobe_async(kAnySource, 5, soon).wait(); }, "any rank");
            Work probe = group.probe_async(0, 5);
            expect(!probe.wait(std::chrono::milliseconds(5)) && !probe.done(), "nothing has come");
            expect(probe.cancel() && !probe.cancel(), "taken back once");
            expect_code(
                ErrorCode::kCancelled, [&] { probe.wait(); }, "probe(from rank 0, tag 5) was taken back");
          }
          group.barrier();
          int64_t number = group.rank() == 0 ? 7 : -1;
          if (group.rank() == 0) group.send(&number, 1, kInt64, 1, 5);
          if (group.rank() == 1) group.recv(&number, 1, kInt64, 0, 5);
          expect(number == 7, "the message came");
        }) == "");
}

TEST_CASE("a receive that no message has met is taken back, and the message goes to the next") {
  CHECK(everywhere(2, [](Communicator& group) {
          for (const uint64_t count : kCounts) {
            Numbers numbers(count, group.rank() == 0 ? 3 : -1), untouched(count, -1);
            if (group.rank() == 1) {
              std::atomic<int> ended{0};
              Work receive = group.recv_async(untouched, 0, 5);
              receive.on_end([&](const Error& error) { ended = error.code == ErrorCode::kCancelled ? 1 : -1; });
              expect(receive.cancel(), "taken back");
              expect_code(ErrorCode::kCancelled, [&] { receive.wait(); });
              while (ended == 0) std::this_thread::yield();
              expect(ended == 1, "the end function hears of it");
            }
            group.barrier();
            if (group.rank() == 0) {
              Work send = group.send_async(numbers, 1, 5);
              expect(!send.cancel(), "sends go on");
              send.wait();
            } else {
              Work receive = group.recv_async(numbers, 0, 5);
              receive.wait();
              expect(!receive.cancel(), "it has ended");
              expect(numbers == Numbers(count, 3) && untouched == Numbers(count, -1), "the message");
            }
            Work barrier = group.barrier_async();
            expect(!barrier.cancel(), "collectives go on");
            barrier.wait();
          }
        }) == "");
}

TEST_CASE("a receive that takes the beginning of a longer message ends alone") {
  CHECK(everywhere(2, [](Communicator& group) {
          CallOptions truncate;
          truncate.truncate = true;
          for (const uint64_t count : {uint64_t{10}, uint64_t{100'000}, uint64_t{1'000'000}}) {
            for (const uint64_t room : {uint64_t{0}, uint64_t{3}, uint64_t{9}, count}) {
              for (const bool late : {false, true}) {
                Numbers numbers(count);
                for (uint64_t i = 0; i < count; ++i) numbers[i] = static_cast<int64_t>(i);
                if (group.rank() == 0) {
                  Work send = group.send_async(numbers, 1, 5);
                  if (late) group.barrier();
                  send.wait();
                  group.send(numbers, 1, 6);
                } else {
                  if (late) group.barrier();
                  Numbers beginning(room + 1, -1);
                  const auto receive = [&] {
                    if (late) {
                      group.recv(beginning.data(), room, kInt64, kAnySource, 5, truncate);
                    } else {
                      group.recv_async(beginning.data(), room, kInt64, 0, 5, truncate).wait();
                    }
                  };
                  if (room < count) {
                    expect_code(ErrorCode::kTruncated, receive,
                                "sent " + std::to_string(8 * count) + " bytes with tag 5");
                  } else {
                    receive();
                  }
                  for (uint64_t i = 0; i < room; ++i) expect(beginning[i] == numbers[i], "the beginning");
                  expect(beginning[room] == -1, "nothing lies behind the buffer");
                  Numbers whole(count);
                  group.recv(whole, 0, 6);
                  expect(whole == numbers, "the next message");
                }
                expect(!group.error(), "the communicator goes on");
              }
            }
          }
          group.barrier();
        }) == "");
}

TEST_CASE("a synchronous send is over when its receive has met it") {
  CHECK(everywhere(2, [](Communicator& group) {
          CallOptions synchronous;
          synchronous.synchronous = true;
          for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{100'000}}) {
            Numbers numbers(count, group.rank() == 0 ? 3 : -1);
            if (group.rank() == 0) {
              Work send = group.send_async(numbers, 1, 5, synchronous);
              group.barrier();
              expect(!send.wait(std::chrono::milliseconds(2)), "before its receive");
              group.barrier();
              send.wait();
              group.send(numbers, 1, 6, synchronous);
            } else {
              group.barrier();
              expect_found(group.probe(0, 5), 5, 8 * count);
              group.barrier();
              expect_found(group.recv(numbers, 0, 5), 5, 8 * count);
              expect(numbers == Numbers(count, 3), "the message");
              expect_found(group.recv(numbers, 0, 6), 6, 8 * count);
            }
          }
        }) == "");
}

TEST_CASE("probes and cancel answer at once while another thread waits for a message, and sleeps") {
  CHECK(everywhere(2, [](Communicator& group) {
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
            expect_code(ErrorCode::kInvalid, call, words);
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
  CHECK(everywhere(2, [](Communicator& group) {
          if (group.rank() == 0) return group.destroy();
          expect_code(ErrorCode::kPeerLeft, [&] { group.probe(0, 5); });
          expect_code(ErrorCode::kPeerLeft, [&] { awaited(group, 0, 5); });
          expect_code(ErrorCode::kPeerLeft, [&] { group.mprobe(kAnySource, kAnyTag); });
        }) == "");
  CHECK(everywhere(2, [](Communicator& group) {
          if (group.rank() == 0) return group.abort("enough");
          expect_code(
              ErrorCode::kAborted, [&] { group.mprobe(0, 5); }, "enough");
          expect_code(
              ErrorCode::kAborted, [&] { group.iprobe(0, 5); }, "enough");
        }) == "");
}

}  // namespace rondo::testing
