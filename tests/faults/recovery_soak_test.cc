// A job that lives while its ranks are killed, stopped for a moment or for long, and others come: every sum is right,
// every step is done once, nobody hangs, and the descriptors, threads and memory of those that live stay what they are.
// --seconds=N: for each transport. --first-seed=N: what happens.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/arguments.h"
#include "tests/faults/ranks.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kWorld = 4;
constexpr uint64_t kCount = 3'000;
constexpr auto kPatience = 8s;
// Longer than a suspicion, a shrink() and a start take on a machine that is busy.
constexpr auto kStandstill = 40s;
// What may differ between two epochs of one size: sockets of links that are made when they are used, rank 0's store.
constexpr int64_t kSpareDescriptors = 24;
constexpr int64_t kSpareBytes = 6 << 20;

void expect(bool right, const std::string& what) {
  if (!right) throw Exception(ErrorCode::kInternal, what);
}

// --- a rank

struct Life {
  Here& here;
  Communicator group, pair;  // the ranks of the same parity
  float* registered = nullptr;
  int64_t weight = 0;  // the sum of the committed steps
  uint64_t known_epoch = ~0ull;

  void begin_epoch() {
    group.broadcast(&weight, 1, DType::kInt64, 0);
    const int64_t done = group.committed();
    expect(weight == done * (done + 1) / 2, fmt::format("the weight is {} after step {}", weight, done));
    pair = group.split(group.rank() % 2);
    known_epoch = group.epoch();
    if (registered == nullptr) registered = static_cast<float*>(group.allocate(kCount * sizeof(float)));
    const Resources resources = Resources::now();
    here.say(fmt::format("epoch {} {} {} {} {} {}", known_epoch, group.rank(), group.size(), resources.descriptors,
                         resources.threads, resources.allocated_bytes));
  }

  // Every member's share is its rank + the step.
  void sum(Communicator& of, float* data, int64_t step) {
    std::fill_n(data, kCount, static_cast<float>(of.rank() + step % 100));
    of.all_reduce(data, data, kCount, DType::kFloat32);
    const auto right = static_cast<float>(of.size() * (of.size() - 1) / 2 + of.size() * (step % 100));
    for (uint64_t i = 0; i < kCount; ++i) {
      expect(data[i] == right, fmt::format("step {}: {} at {} instead of {}", step, data[i], i, right));
    }
  }

  // True: it was the last.
  bool step(int64_t number, const std::string& stop) {
    if (known_epoch != group.epoch()) begin_epoch();
    std::vector<float> plain(kCount);
    sum(group, plain.data(), number);
    sum(group, registered, number);
    sum(pair, plain.data(), number);
    int ends = group.rank() == 0 && std::filesystem::exists(stop) ? 1 : 0;
    group.broadcast(&ends, 1, DType::kInt32, 0);
    group.commit(number);
    return ends != 0;
  }

  void run(const std::string& stop) {
    for (bool last = false; !last;) {
      const int64_t number = group.committed() + 1;
      bool lost = false;
      try {
        last = step(number, stop);
        if (const int newcomers = group.newcomers(); newcomers > 0 && !last) {
          try {
            group = group.grow(newcomers, 5s);
          } catch (const Exception& failure) {
            if (failure.code() != ErrorCode::kTimeout || group.error()) throw;
          }
        }
      } catch (const Exception& failure) {
        switch (failure.code()) {
          case ErrorCode::kPeerLost:
          case ErrorCode::kPeerLeft:
          case ErrorCode::kUnresponsive:
          case ErrorCode::kTimeout:
          case ErrorCode::kNetwork:
            lost = true;
            break;
          default:
            throw;
        }
      }
      if (lost) group = group.shrink(kPatience);
      if (group.committed() == number) weight += number;
    }
    here.say(fmt::format("end {} {}", group.committed(), weight));
  }
};

// --- the world around it

struct Slot {
  RankProcess process;
  bool in = false, stopped = false, left_out = false, over = false;
  int epochs = 0;
  std::map<int, std::vector<int64_t>> first = {};  // by size: descriptors, threads and bytes of an early epoch
};

class World {
 public:
  World(const char* transport, uint64_t seed) : random_(seed) {
    config_ = fault_config();
    config_.transport = transport;
    config_.heartbeat_ms = 400;
    config_.suspicion_ms = 6'000;  // a busy machine lets a rank wait for longer than the test stops it
    config_.start_timeout_ms = 60'000;
    for (int rank = 0; rank < kWorld; ++rank) start(rank);
  }

  void live(std::chrono::seconds so_long) {
    const auto until = Clock::now() + so_long;
    while (Clock::now() < until || (Clock::now() < until + 60s && (kills_ == 0 || joins_ == 0))) {
      listen(std::chrono::milliseconds(20 + below(250)));
      act();
    }
    std::ofstream(folder_.path("stop")) << "now";
    while (std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.in && !slot.over; })) {
      listen(20ms);
      calm();
    }
    MESSAGE(kills_ << " killed, " << stops_ << " stopped, " << left_out_ << " left out, " << joins_
                   << " came in; epoch " << epoch_ << ", step " << steps_);
    CHECK(ended_ > 0);
    CHECK(kills_ > 0);
    CHECK(joins_ > 0);
  }

 private:
  uint64_t below(uint64_t bound) { return random_.next() % bound; }

  void start(int rank) {
    JoinOptions options = job_.options(rank, rank < 0 ? -1 : kWorld, config_);
    if (rank < 0) options.rendezvous.clear();
    options.newcomers = "unix://" + folder_.path("door");
    const std::string stop = folder_.path("stop");
    slots_.push_back({RankProcess(
        options,
        [stop](Here& here) {
          const std::string said = outcome([&] {
            Life life{here, Communicator::join(here.options), {}};
            life.run(stop);
          });
          if (said != "ok") here.say("failed " + said);
        },
        3'600)});
  }

  std::vector<Slot*> living() {
    std::vector<Slot*> found;
    for (Slot& slot : slots_) {
      if (slot.in && !slot.over && !slot.stopped && !slot.left_out) found.push_back(&slot);
    }
    return found;
  }

  void act() {
    calm();
    const auto running = living();
    const uint64_t what = below(10);
    const bool quiet = Clock::now() < calm_until_;
    if (running.size() >= 2 && what < 2 && !quiet) {
      kill(*running[below(running.size())]);
      if (running.size() >= 4 && below(3) == 0) kill(*living()[below(running.size() - 1)]);
    } else if (running.size() >= 3 && what < 4 && !quiet) {  // one of two, given up, would leave no quorum
      Slot& slot = *running[below(running.size())];
      slot.process.signal(SIGSTOP);
      ++stops_;
      std::this_thread::sleep_for(std::chrono::milliseconds(below(600)));
      slot.process.signal(SIGCONT);
    } else if (running.size() >= 3 && what == 4 && !quiet) {  // until it is left out
      Slot& slot = *running[below(running.size())];
      slot.process.signal(SIGSTOP);
      slot.stopped = true;
      stopped_in_epoch_ = epoch_;
      calm_until_ = Clock::now() + 25s;
    } else if (what >= 7) {
      const auto count = std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.over; });
      if (count < kWorld) start(-1);
    }
  }

  void kill(Slot& slot) {
    slot.process.signal(SIGKILL);
    slot.over = true;
    ++kills_;
  }

  // One that the others go on without is continued.
  void calm() {
    for (Slot& slot : slots_) {
      if (!slot.stopped || epoch_ == stopped_in_epoch_) continue;
      slot.stopped = false;
      slot.left_out = true;  // and will say so
      slot.process.signal(SIGCONT);
      calm_until_ = Clock::now() + 500ms;
    }
    if (Clock::now() - heard_ > kStandstill) FAIL("nothing was heard for so long");
    slots_.remove_if([](const Slot& slot) { return slot.over; });
  }

  void listen(std::chrono::milliseconds so_long) {
    const auto until = Clock::now() + so_long;
    do {
      for (Slot& slot : slots_) {
        while (!slot.over) {
          const std::string line = slot.process.hear(1);
          if (line.empty()) break;
          heard(slot, line);
        }
      }
    } while (Clock::now() < until);
  }

  void heard(Slot& slot, const std::string& line) {
    heard_ = Clock::now();
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "epoch") return began(slot, words);
    slot.over = true;
    if (word == "end") {
      int64_t done = 0, weight = 0;
      words >> done >> weight;
      CHECK(weight == done * (done + 1) / 2);
      steps_ = done;
      ++ended_;
    } else {
      // The others went on while it was stopped; or nobody takes it in any more.
      CHECK_MESSAGE(line.find(slot.in ? "failed EPOCH_STALE" : "failed PEER_LEFT") == 0, line);
      left_out_ += slot.in;
    }
  }

  void began(Slot& slot, std::istringstream& words) {
    uint64_t epoch = 0;
    int rank = 0, size = 0;
    std::vector<int64_t> now(3);
    words >> epoch >> rank >> size >> now[0] >> now[1] >> now[2];
    epoch_ = std::max(epoch_, epoch);
    if (!slot.in && epoch > 0) ++joins_;
    slot.in = true;
    // In the first ones it makes what it keeps.
    if (++slot.epochs < 4) return;
    const auto [first, made] = slot.first.emplace(size, now);
    if (made) return;
    CHECK_MESSAGE(now[0] - first->second[0] <= kSpareDescriptors, "descriptors in epoch " << epoch);
    CHECK_MESSAGE(now[1] - first->second[1] <= 3, "threads in epoch " << epoch);
    CHECK_MESSAGE(now[2] - first->second[2] <= kSpareBytes, "bytes in epoch " << epoch);
  }

  TempFolder folder_;
  Job job_;
  Config config_;
  Random random_;
  std::list<Slot> slots_;
  uint64_t epoch_ = 0, stopped_in_epoch_ = 0;
  int kills_ = 0, stops_ = 0, left_out_ = 0, joins_ = 0, ended_ = 0;
  int64_t steps_ = 0;
  Clock::time_point heard_ = Clock::now(), calm_until_{};
};

TEST_CASE("fault 72: ranks are killed, stopped and started at random") {
  const std::chrono::seconds so_long(argument("seconds", 10));
  const auto [seed, count] = seed_range(1);
  for (const char* transport : {"auto", "tcp"}) {
    CAPTURE(transport);
    World(transport, seed).live(so_long);
  }
}

}  // namespace
}  // namespace rondo::testing
