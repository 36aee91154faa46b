// Whatever the threads of a rank do meanwhile, an operation that they have started ends once its peers have done their
// part: long before the rank waits for it. Three ranks as processes: 0 has started something and does another thing, 1
// waits for the end of what 0 has started, 2 takes part in what 0 does.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlower = 5;
#else
constexpr int kSlower = 1;
#endif
// Rank 0 does the other thing for so long; an operation that nobody moves meanwhile takes at least as long.
constexpr std::chrono::milliseconds kBusy{250 * kSlower};
// The most that rank 1 may wait: 5 ms, the transfer, and what other programs take of two cores.
constexpr std::chrono::milliseconds kMost{120 * kSlower};
// Beside other programs a round may be late.
constexpr int kRounds = 4;

constexpr int kActor = 0, kPeer = 1, kPartner = 2;
constexpr int kLargeTag = 1, kShortTag = 2;

struct Ranks {
  Communicator& all;
  Communicator pair;      // of the actor and the peer; the partner has one of its own
  Communicator partners;  // of the actor and the partner; likewise
  const int* pipe;        // the actor says to the peer that it begins its other thing
};

void compute(microseconds time) {
  const auto start = Clock::now();
  while (Clock::now() - start < time) {
  }
}

// What rank 0 has started; the peer's part blocks until the end.
struct Started {
  std::string name;
  std::function<Work(Ranks&, std::vector<uint8_t>&)> start;
  std::function<void(Ranks&, std::vector<uint8_t>&)> peer;
  size_t bytes;
};

std::vector<Started> started_operations() {
  std::vector<Started> all;
  for (const size_t bytes : {size_t{8}, size_t{100'000}, size_t{8} << 20}) {
    all.push_back(
        {fmt::format("send of {} bytes", bytes),
         [](Ranks& ranks, auto& data) {
           return ranks.all.send_async(data.data(), data.size(), DType::kUint8, kPeer, kLargeTag);
         },
         [](Ranks& ranks, auto& data) { ranks.all.recv(data.data(), data.size(), DType::kUint8, kActor, kLargeTag); },
         bytes});
    all.push_back({fmt::format("receive of {} bytes", bytes),
                   [](Ranks& ranks, auto& data) {
                     return ranks.all.recv_async(data.data(), data.size(), DType::kUint8, kPeer, kLargeTag);
                   },
                   [](Ranks& ranks, auto& data) {
                     ranks.all.send(data.data(), data.size(), DType::kUint8, kActor, kLargeTag, {.synchronous = true});
                   },
                   bytes});
    all.push_back({fmt::format("all_reduce of {} bytes", bytes),
                   [](Ranks& ranks, auto& data) {
                     return ranks.pair.all_reduce_async(data.data(), data.data(), data.size(), DType::kUint8, Op::kMax);
                   },
                   [](Ranks& ranks, auto& data) {
                     ranks.pair.all_reduce(data.data(), data.data(), data.size(), DType::kUint8, Op::kMax);
                   },
                   bytes});
  }
  return all;
}

// What rank 0 does meanwhile, for kBusy; and the partner.
struct Meanwhile {
  std::string name;
  std::function<void(Ranks&)> actor;
  std::function<void(Ranks&)> partner = [](Ranks&) {};
};

// Calls that are over at once, one each `pause`, as many as fit into kBusy.
void repeat(microseconds pause, const std::function<void()>& call) {
  for (auto now = Clock::now(), end = now + kBusy; now < end; now = Clock::now()) {
    call();
    compute(pause);
  }
}

void last_word(Communicator& group, int from, int to) {
  uint8_t word = 0;
  if (group.rank() == from) group.send(&word, 1, DType::kUint8, to, kShortTag);
  if (group.rank() == to) group.recv(&word, 1, DType::kUint8, from, kShortTag);
}

std::vector<Meanwhile> things_to_do() {
  std::vector<Meanwhile> all;
  all.push_back({"computes", [](Ranks&) { compute(kBusy); }});
  all.push_back({"sleeps", [](Ranks&) { std::this_thread::sleep_for(kBusy); }});
  for (const int pause : {10, 100, 1000}) {
    all.push_back({fmt::format("sends 8 bytes each {} us", pause),
                   [pause](Ranks& ranks) {
                     uint64_t sent = 1, last = 0;
                     repeat(microseconds(pause),
                            [&] { ranks.all.send(&sent, 1, DType::kUint64, kPartner, kShortTag); });
                     ranks.all.send(&last, 1, DType::kUint64, kPartner, kShortTag);
                   },
                   [](Ranks& ranks) {
                     for (uint64_t came = 1; came != 0;) {
                       ranks.all.recv(&came, 1, DType::kUint64, kActor, kShortTag);
                     }
                   }});
    all.push_back({fmt::format("all_reduces 8 bytes each {} us", pause),
                   [pause](Ranks& ranks) {
                     uint64_t more = 1, last = 0;
                     repeat(microseconds(pause),
                            [&] { ranks.partners.all_reduce(&more, &more, 1, DType::kUint64, Op::kMax); });
                     ranks.partners.all_reduce(&last, &last, 1, DType::kUint64, Op::kMax);
                   },
                   [](Ranks& ranks) {
                     for (uint64_t more = 1; more != 0;) {
                       more = 0;
                       ranks.partners.all_reduce(&more, &more, 1, DType::kUint64, Op::kMax);
                     }
                   }});
    all.push_back({fmt::format("starts a send of 8 bytes each {} us", pause),
                   [pause](Ranks& ranks) {
                     const uint64_t sent = 1, last = 0;
                     repeat(microseconds(pause),
                            [&] { ranks.all.send_async(&sent, 1, DType::kUint64, kPartner, kShortTag); });
                     ranks.all.send(&last, 1, DType::kUint64, kPartner, kShortTag);
                   },
                   [](Ranks& ranks) {
                     for (uint64_t came = 1; came != 0;) {
                       ranks.all.recv(&came, 1, DType::kUint64, kActor, kShortTag);
                     }
                   }});
  }
  all.push_back({"waits for a receive", [](Ranks& ranks) { last_word(ranks.all, kPartner, kActor); },
                 [](Ranks& ranks) {
                   std::this_thread::sleep_for(kBusy);
                   last_word(ranks.all, kPartner, kActor);
                 }});
  all.push_back({"waits in another communicator's barrier", [](Ranks& ranks) { ranks.partners.barrier(); },
                 [](Ranks& ranks) {
                   std::this_thread::sleep_for(kBusy);
                   ranks.partners.barrier();
                 }});
  all.push_back({"asks whether a receive is done",
                 [](Ranks& ranks) {
                   uint8_t word = 0;
                   Work work = ranks.partners.recv_async(&word, 1, DType::kUint8, 1, kShortTag);
                   while (!work.done()) compute(microseconds(50));
                 },
                 [](Ranks& ranks) {
                   std::this_thread::sleep_for(kBusy);
                   last_word(ranks.partners, 1, 0);
                 }});
  all.push_back({"has a thread that waits in another communicator, and computes",
                 [](Ranks& ranks) {
                   std::thread waits([&] { ranks.partners.barrier(); });
                   compute(kBusy);
                   waits.join();
                 },
                 [](Ranks& ranks) {
                   std::this_thread::sleep_for(kBusy / 2);
                   ranks.partners.barrier();
                 }});
  return all;
}

// How long rank 1 waited, in ms; 0 on the others.
int64_t wait_of_peer(Ranks& ranks, const Started& started, const Meanwhile& meanwhile) {
  std::vector<uint8_t> data(started.bytes, static_cast<uint8_t>(1 + ranks.all.rank()));
  ranks.all.barrier();
  if (ranks.all.rank() == kActor) {
    Work work = started.start(ranks, data);
    expect(::write(ranks.pipe[1], "x", 1) == 1, "write");
    meanwhile.actor(ranks);
    work.wait();
  } else if (ranks.all.rank() == kPartner) {
    meanwhile.partner(ranks);
  } else {
    char begun = 0;
    expect(::read(ranks.pipe[0], &begun, 1) == 1, "read");
    const auto start = Clock::now();
    started.peer(ranks, data);
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
  }
  return 0;
}

void check_all(const char* transport) {
  RankGroup shape = ranks_over(transport, 3);
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  CHECK(run_processes(shape, [&](Communicator& group) {
          Ranks ranks{group, group.split(group.rank() == kPartner ? 1 : 0), group.split(group.rank() == kPeer ? 1 : 0),
                      pipe};
          const auto things = things_to_do();
          const auto operations = started_operations();
          // Each of them with each other is minutes (RONDO_WHOLE); else each thing with two operations in turn.
          const size_t every = std::getenv("RONDO_WHOLE") != nullptr ? 1 : 5;
          for (size_t i = 0; i < things.size(); ++i) {
            const Meanwhile& meanwhile = things[i];
            for (size_t j = i % every; j < operations.size(); j += every) {
              const Started& started = operations[j];
              int64_t least = INT64_MAX;
              for (int round = 0; round < kRounds && least > kMost.count(); ++round) {
                int64_t waited = wait_of_peer(ranks, started, meanwhile);
                group.all_reduce(&waited, &waited, 1, DType::kInt64, Op::kMax);
                least = std::min(least, waited);
              }
              expect(least <= kMost.count(), [&] {
                return fmt::format("a {}, while its rank {}: {} ms", started.name, meanwhile.name, least);
              });
            }
          }
        }) == "");
  for (const int end : pipe) ::close(end);
}

}  // namespace

TEST_CASE("what a rank has started ends whatever it does meanwhile: shared memory") { check_all("shm"); }
TEST_CASE("what a rank has started ends whatever it does meanwhile: TCP") { check_all("tcp"); }

}  // namespace rondo::testing
