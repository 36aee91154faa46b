// Ranks that die, stop or abort while passes run: all others get the error that names the rank in time, their streams
// and their device go on, and destroy() ends. Passes over the memory of all ranks, a ring, staged calls, and ranks that
// wait on the host.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "tests/faults/ranks.h"
#include "tests/support/fake_cuda/mirror.h"

namespace rondo::testing {
namespace {

// A second is promised; the machine that runs the tests may have fewer cores than ranks.
constexpr int64_t kSoonMs = 2'000;
constexpr int kAtFault = 1;
constexpr size_t kInFlight = 8;

enum class Way { kPasses, kRing, kStaged };

Config config_of(Way way) {
  Config config = fault_config();
  config.device_library = device_library();
  if (way == Way::kRing) config.algorithm = Algorithm::kRing;
  if (way == Way::kStaged) config.device_window_bytes = 0;
  return config;
}

// Calls on a stream, some of them always in flight, until one fails.
class Caller {
 public:
  explicit Caller(Communicator& group) : group_(group), values_(20'000, 1, &mirror_) {
    mirror_.to_device();
    mirror_.synchronize();
  }
  void call_once() {
    void* const data = mirror_.image(values_.data());
    works_.push_back(
        group_.all_reduce_async(data, data, values_.size(), DType::kInt32, Op::kMax, {.stream = mirror_.stream()}));
    if (works_.size() < kInFlight) return;
    works_.front().wait();
    works_.pop_front();
  }
  // Every call in flight is over, and the stream goes on.
  std::string rest() {
    for (Work& work : works_) outcome([&] { work.wait(); });
    mirror_.to_host();
    return "goes on";
  }

 private:
  Communicator& group_;
  Mirror mirror_;
  std::pmr::vector<int32_t> values_;
  std::deque<Work> works_;
};

void run_rank(Here& here, bool aborts) {
  Communicator group = Communicator::join(here.options);
  Caller caller(group);
  for (int i = 0; i < 50; ++i) caller.call_once();
  here.say("ready");
  if (aborts && here.rank() == kAtFault) {
    here.await();
    group.abort("enough");
    return here.say("aborted");
  }
  here.say(outcome([&] {
    while (true) caller.call_once();
  }));
  here.say(caller.rest());
  here.say(here.timed([&] { group.destroy(); }));
}

// The others' last words, in time after `since`.
void expect_ends(Job& job, const std::string& begin, std::chrono::steady_clock::time_point since, int64_t most_ms) {
  for (int rank = 0; rank < job.world(); ++rank) {
    if (rank == kAtFault) continue;
    CAPTURE(rank);
    const std::string said = job[rank].hear();
    CAPTURE(said);
    CHECK(said.find(begin) == 0);
    CHECK(said.find("rank 1 ") != std::string::npos);
    CHECK(ms_since(since) < most_ms);
    CHECK(job[rank].hear() == "goes on");
    const Timed destroyed = timed_line(job[rank].hear());
    CHECK(destroyed.outcome == "ok");
    CHECK(destroyed.elapsed_ms < kSoonMs);
  }
}

constexpr Way kWays[] = {Way::kPasses, Way::kRing, Way::kStaged};

struct Fault {
  const char* what;
  const char* said;
  int signal;  // 0: it aborts
  int64_t least_ms, most_ms;
};
constexpr int kSuspicionMs = 1'500;
constexpr Fault kFaults[] = {{"is killed", "PEER_LOST [1]", SIGKILL, 0, kSoonMs},
                             {"aborts", "ABORTED [1]", 0, 0, kSoonMs},
                             {"is stopped", "UNRESPONSIVE [1]", SIGSTOP, 1'000, kSuspicionMs + kSoonMs}};

}  // namespace

TEST_CASE("a rank is killed, aborts or is stopped in the middle of calls: the others hear of it in time") {
  for (const Fault& fault : kFaults) {
    for (const Way way : kWays) {
      CAPTURE(std::string(fault.what));
      CAPTURE(static_cast<int>(way));
      Config config = config_of(way);
      if (fault.signal == SIGSTOP) {
        config.heartbeat_ms = 200;
        config.suspicion_ms = kSuspicionMs;
      }
      Job job;
      job.start(
          3, [&](Here& here) { run_rank(here, fault.signal == 0); }, config);
      job.expect_all("ready");
      const auto since = std::chrono::steady_clock::now();
      if (fault.signal != 0) {
        job[kAtFault].signal(fault.signal);
      } else {
        job[kAtFault].tell("go");
        CHECK(job[kAtFault].hear() == "aborted");
      }
      expect_ends(job, fault.said, since, fault.most_ms);
      CHECK(ms_since(since) >= fault.least_ms);
    }
  }
}

TEST_CASE("another communicator of the same ranks goes on when one is aborted") {
  Job job;
  job.start(
      2,
      [&](Here& here) {
        Communicator group = Communicator::join(here.options);
        const std::vector<int> both{0, 1};
        Communicator second = group.new_group(both);
        Caller first(second), other(group);
        for (int i = 0; i < 20; ++i) {
          first.call_once();
          other.call_once();
        }
        group.barrier();
        if (here.rank() == kAtFault) second.abort("enough");
        here.say(outcome([&] {
          while (true) first.call_once();
        }));
        for (int i = 0; i < 20; ++i) other.call_once();
        group.barrier();
        here.say("done");
      },
      config_of(Way::kPasses));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(job[rank].hear().find("ABORTED [1]") == 0);
    CHECK(job[rank].hear() == "done");
  }
}

}  // namespace rondo::testing
