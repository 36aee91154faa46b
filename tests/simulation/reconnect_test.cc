// All processes that wait for a job lose the rank that serves them, at once, and settle at the next one in a bounded
// time.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "rondo/communicator.h"
#include "tests/simulation/kernel.h"

namespace rondo::testing::sim {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 3, kHosts = 11;
constexpr const char* kDoors = "tcp://10.0.0.1:29600,tcp://10.0.0.2:29600,tcp://10.0.0.3:29600";

class Crowd {
 public:
  explicit Crowd(int waiting) : waiting_(waiting), machine_(1), kernel_(machine_, {}) {}

  void run() {
    for (int rank = 0; rank < kRanks; ++rank) {
      kernel_.adopt(machine_.spawn(rank, [this, rank] { serve(rank); }));
    }
    for (int i = 0; i < waiting_; ++i) {
      kernel_.adopt(machine_.spawn(kRanks + i % (kHosts - kRanks), [this] { wait(); }));
    }
    ended = machine_.run([](uint64_t) {}, machine_.now() + 600 * kSecond);
  }

  Time met = 0, settled = 0;  // all wait, since the start; and since the rank that served them died
  int told = 0;               // that the job has ended
  bool ended = false;
  uint64_t steps() const { return machine_.steps(); }

 private:
  JoinOptions options() const {
    JoinOptions options;
    options.config = {};
    options.config.transport = "tcp";
    options.config.insecure = true;
    options.config.debug = "off";
    options.newcomers = kDoors;
    options.job_id = "simulated";
    return options;
  }

  // Waits like a job that takes them in only when all are there.
  Time await_all(Communicator& group, Time since) {
    while (group.newcomers() < waiting_) std::this_thread::sleep_for(10ms);
    return machine_.now() - since;
  }

  void serve(int rank) {
    const Time began = machine_.now();
    JoinOptions own = options();
    own.rank = rank;
    own.world = kRanks;
    own.rendezvous = "tcp://10.0.0.1:29500";
    Communicator group = Communicator::join(own);
    met = await_all(group, began);
    if (rank == 0) {
      died_ = machine_.now();
      machine_.end(*Machine::process());
    }
    try {
      while (true) group.newcomers();
    } catch (const Exception&) {
      group = group.shrink(5s);
    }
    settled = await_all(group, died_);
    group.destroy();
  }

  void wait() {
    try {
      Communicator::join(options());
    } catch (const Exception& failure) {
      told += failure.code() == ErrorCode::kPeerLeft;
    }
  }

  const int waiting_;
  Machine machine_;
  Kernel kernel_;
  Time died_ = 0;
};

TEST_CASE("processes that wait reconnect when the rank that serves them dies") {
  const char* const count = std::getenv("RONDO_PROCESSES");
  const int waiting = count == nullptr ? 4096 : std::atoi(count);
  Crowd crowd(waiting);
  crowd.run();
  CHECK(crowd.ended);
  CHECK(crowd.told == waiting);
  MESSAGE(waiting, " processes wait ", crowd.met / kMillisecond, " ms after the start, and ",
          crowd.settled / kMillisecond, " ms after a death again; ", crowd.steps(), " steps");
  CHECK(crowd.settled < 60 * kSecond);
}

}  // namespace
}  // namespace rondo::testing::sim
