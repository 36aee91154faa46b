// A process that dies: all others say so within a second, naming it, in what they were doing and in what they try next.
// In a start and while it leaves: tests/simulation. In sums of all sizes, at every moment: tests/life.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rondo/unique_id.h"
#include "tests/faults/ranks.h"
#include "transport/rendezvous/served_store.h"

namespace rondo::testing {
namespace {

constexpr int64_t kSoonMs = 1'500;  // a second is promised, on a machine with a core a rank

void check_loss(const std::string& outcome, int victim, pid_t pid) {
  CAPTURE(outcome);
  CHECK(outcome.find(fmt::format("PEER_LOST [{0}] rank {0} (host ", victim)) == 0);
  CHECK(outcome.find(fmt::format("pid {}) died", pid)) != std::string::npos);
}

// The survivors' next three lines: what ended and how long after the kill, what a later call said, and "untouched".
void expect_losses(Job& job, int victim, std::chrono::steady_clock::time_point killed) {
  const pid_t pid = job[victim].pid();
  std::map<int, std::string> said;  // by all before anything slow is awaited: looking through a large buffer
  for (int rank = 0; rank < job.world(); ++rank) {
    if (rank == victim) continue;
    CAPTURE(rank);
    said[rank] = job[rank].hear();
    check_within(5, ms_since(killed), kSoonMs);
    check_loss(said[rank], victim, pid);
  }
  for (const auto& survivor : said) {
    const int rank = survivor.first;
    const std::string& loss = survivor.second;
    CAPTURE(rank);
    CHECK(job[rank].hear() == loss);
    CHECK(job[rank].hear() == "untouched");
  }
}

// Loops until something fails, then tries once more.
void run_until_failure(Here& here, Communicator& group, const std::function<void()>& call, const Guarded& input) {
  std::string said = "ok";
  while (said == "ok") said = outcome(call);
  here.say(said);
  here.say(outcome([&] { group.barrier(); }));
  here.say(input.untouched() ? "untouched" : "input overwritten");
}

// A rank puts this key into it at the end of its life, having stood still for so long.
class LastStore : public StreamStore {
 public:
  LastStore(Options options, std::string key, std::chrono::milliseconds still, const Parent& test)
      : StreamStore(std::move(options)), key_(std::move(key)), still_(still), test_(test) {}
  void put(std::string_view key, std::string_view value, Deadline deadline) override {
    if (key != key_) return StreamStore::put(key, value, deadline);
    std::this_thread::sleep_for(still_);
    test_.say("dies");
    ::raise(SIGKILL);
  }

 private:
  const std::string key_;
  const std::chrono::milliseconds still_;
  const Parent& test_;
};

}  // namespace

TEST_CASE("fault 2: killed after it has stood still where the others wait to hear with whom it shares memory") {
  constexpr int kVictim = 3;
  Job job;
  job.start(4, [&](Here& here) {
    const JoinOptions& join = here.options;
    const Launch launch = find_launch({join.rank, join.world, join.rendezvous, join.job_id}, join.config);
    if (here.rank() == kVictim) {
      const std::string key = fmt::format("island/{}", kVictim);
      here.options.store =
          std::make_shared<LastStore>(client_options(parse_rendezvous(launch.rendezvous), launch, join.config), key,
                                      std::chrono::milliseconds(3'100), here);
    } else {
      here.options.store = open_store(launch, join.config, std::chrono::steady_clock::now() + std::chrono::seconds(10));
    }
    here.say(outcome([&] { Communicator::join(here.options); }));
  });
  REQUIRE(job[kVictim].hear() == "dies");
  const auto killed = std::chrono::steady_clock::now();
  for (int rank = 0; rank < kVictim; ++rank) {
    CAPTURE(rank);
    check_loss(job[rank].hear(), kVictim, job[kVictim].pid());
  }
  check_within(2, ms_since(killed), kSoonMs);
}

TEST_CASE("fault 5: killed in small collectives, in send and recv, and idle") {
  struct Kind {
    const char* what;
    std::function<void(Communicator&, Guarded&, Guarded&)> call;
  };
  const std::vector<Kind> kinds{
      {"barrier", [](Communicator& group, Guarded&, Guarded&) { group.barrier(); }},
      {"broadcast",
       [](Communicator& group, Guarded&, Guarded& out) { group.broadcast(out.data(), 5000, DType::kFloat32, 1); }},
      {"all_to_all", [](Communicator& group, Guarded& in,
                        Guarded& out) { group.all_to_all(in.data(), out.data(), 5000, DType::kFloat32); }},
      {"small all_reduce", [](Communicator& group, Guarded& in,
                              Guarded& out) { group.all_reduce(in.data(), out.data(), 9, DType::kFloat32); }},
      {"sendrecv",
       [](Communicator& group, Guarded& in, Guarded& out) {
         const int world = group.size();
         group.sendrecv(in.data(), 5000, (group.rank() + 1) % world, out.data(), 5000,
                        (group.rank() + world - 1) % world, DType::kFloat32);
       }},
      {"recv that never comes",
       [](Communicator& group, Guarded&, Guarded& out) { group.recv(out.data(), 1, DType::kFloat32, 1, 7); }},
      {"recv from anybody", [](Communicator& group, Guarded&,
                               Guarded& out) { group.recv(out.data(), 1, DType::kFloat32, kAnySource, kAnyTag); }},
      {"idle",
       [](Communicator& group, Guarded&, Guarded&) {
         eventually([&] { return group.error().has_value(); });
         group.barrier();
       }},
  };
  constexpr int kVictim = 1;
  for (const Kind& kind : kinds) {
    const std::string what = kind.what;
    CAPTURE(what);
    Job job;
    job.start(4, [&](Here& here) {
      Communicator group = Communicator::join(here.options);
      Guarded input(4 * 5000 * 4, 1), output(4 * 5000 * 4, 2);
      here.say("ready");
      here.await();
      if (here.rank() == kVictim) here.say("calling");
      run_until_failure(
          here, group, [&] { kind.call(group, input, output); }, input);
    });
    job.expect_all("ready");
    job.tell_all("go");
    REQUIRE(job[kVictim].hear() == "calling");
    job[kVictim].signal(SIGKILL);
    expect_losses(job, kVictim, std::chrono::steady_clock::now());
  }
}

TEST_CASE("fault 9: the process that serves the rendezvous is killed: the group at work goes on, and can be split") {
  RankProcess server(JoinOptions(), [](Here& here) {  // it is no rank
    const UniqueIdServer meeting("127.0.0.1", fault_config());
    here.say(meeting.id());
    here.await();
  });
  const std::string id = server.hear();
  Job job;
  job.start(2, [id](Here& here) {
    here.options.rendezvous = id;
    Communicator group = Communicator::join(here.options);
    here.say(sums_until(group, 0));
    here.await();
    here.say(sums_until(group, 300));
    Communicator again = group.split(0);
    here.say(sums_until(again, 0));
    here.say(outcome([&] { group.destroy(); }));
  });
  job.expect_all("ok");
  server.signal(SIGKILL);
  CHECK(server.wait() == -SIGKILL);
  job.tell_all("go");
  for (int line = 0; line < 3; ++line) job.expect_all("ok");
}

}  // namespace rondo::testing
