// A process that dies: all others say so within a second, naming it, in what they were doing and in what they try next.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "rondo/unique_id.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr int64_t kSoonMs = 1'500;  // a second is promised, on a machine with a core a rank
constexpr uint64_t kLarge = 16 << 20;

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

}  // namespace

TEST_CASE("killed in the middle of a large all_reduce, wherever it is") {
  // Proves: at delays that fall into both halves of the ring (it takes some 40 to 100 ms here), with rank 0 as well,
  // with one lane and with several.
  for (const int delay_ms : {0, 1, 5, 10, 21, 35, 52}) {
    for (const int victim : {0, 2}) {
      CAPTURE(delay_ms);
      CAPTURE(victim);
      Config config = fault_config();
      config.lanes = delay_ms % 5 == 0 ? 1 : 3;
      Job job;
      job.start(
          4,
          [&](Here& here) {
            Communicator group = Communicator::join(here.options);
            Guarded input(kLarge * 4, 1), output(kLarge * 4, 2);
            here.say("ready");
            here.await();
            const auto call = [&] { group.all_reduce(input.data(), output.data(), kLarge, DType::kFloat32); };
            if (here.rank() == victim) {
              std::thread([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
                here.say("now");
                ::raise(SIGKILL);
              }).detach();
            }
            run_until_failure(here, group, call, input);
          },
          config);
      job.expect_all("ready");
      job.tell_all("go");
      REQUIRE(job[victim].hear() == "now");
      expect_losses(job, victim, std::chrono::steady_clock::now());
    }
  }
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
      run_until_failure(
          here, group, [&] { kind.call(group, input, output); }, input);
    });
    job.expect_all("ready");
    job.tell_all("go");
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // any moment of the loop will do
    job[kVictim].signal(SIGKILL);
    expect_losses(job, kVictim, std::chrono::steady_clock::now());
  }
}

TEST_CASE("fault 8: two that die at once are both named") {
  Job job;
  job.start(5, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    std::vector<float> values(1 << 20);
    here.say("ready");
    std::string said = "ok";
    while (said == "ok") {
      said = outcome([&] { group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32); });
    }
    here.say(said);
    eventually([&] { return group.error()->ranks.size() == 2; });
    here.say(outcome([&] { group.barrier(); }));
    here.await();
  });
  job.expect_all("ready");
  job[1].signal(SIGKILL);
  job[3].signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  for (const int rank : {0, 2, 4}) {
    CAPTURE(rank);
    const std::string first = job[rank].hear(2'000);
    CAPTURE(first);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    CHECK(first.find("PEER_LOST [") ==
          0);  // its shadow memory makes a process end late: one may be seen before the other
#else
    CHECK(first.find("PEER_LOST [1,3] rank 1 (host ") == 0);
#endif
    const std::string said = job[rank].hear(2'000);
    check_within(8, ms_since(killed), kSoonMs);
    CAPTURE(said);
    CHECK((said.find("PEER_LOST [1,3] ") == 0 || said.find("PEER_LOST [3,1] ") == 0));
    CHECK(said.find("rank 1 (host ") != std::string::npos);
    CHECK(said.find("rank 3 (host ") != std::string::npos);
  }
}

void kill_while_starting(int row, std::initializer_list<int> moments_us) {
  Config config = fault_config();
  config.start_timeout_ms = 1'500;
  for (const int after_us : moments_us) {
    CAPTURE(after_us);
    Job job;
    job.start(
        4,
        [&](Here& here) {
          if (here.rank() == 2) {
            if (after_us < 0) ::raise(SIGKILL);
            std::thread([&] {
              std::this_thread::sleep_for(std::chrono::microseconds(after_us));
              ::raise(SIGKILL);
            }).detach();
          }
          Communicator group;
          here.say(here.timed([&] {
            group = Communicator::join(here.options);
            group.barrier();
            while (true) group.barrier();
          }));
        },
        config);
    for (const int rank : {0, 1, 3}) {
      const Timed said = timed_line(job[rank].hear());
      CAPTURE(rank);
      CAPTURE(said.outcome);
      CHECK((said.begins("PEER_LOST [2] ") || said.begins("BOOTSTRAP [2] ")));
      check_within(row, said.elapsed_ms, config.start_timeout_ms + kSoonMs);
    }
  }
}

TEST_CASE("fault 1: killed before it says a word: the others' join names it at their deadline") {
  kill_while_starting(1, {-1});
}

TEST_CASE(
    "fault 2: killed in the middle of joining: the others end in time, and blame nobody that gave up because of it") {
  kill_while_starting(2, {0, 500, 2'000, 4'000, 8'000, 12'000, 20'000});
}

TEST_CASE("fault 6: killed while shutting down: the others' destroy ends") {
  Job job;
  job.start(3, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    group.barrier();
    here.say("ready");
    if (here.rank() == 1) here.await();
    here.say(here.timed([&] { group.destroy(); }));
  });
  job.expect_all("ready");
  job[1].signal(SIGKILL);
  for (const int rank : {0, 2}) {
    const Timed said = timed_line(job[rank].hear());
    CHECK(said.outcome == "ok");
    check_within(6, said.elapsed_ms, kSoonMs);
    CHECK(job[rank].wait() == 0);
  }
}

// A process that serves a unique id, and is no rank.
RankProcess serve_id(std::string& id) {
  RankProcess server(JoinOptions(), [](Here& here) {
    const UniqueIdServer meeting("127.0.0.1", fault_config());
    here.say(meeting.id());
    here.await();
  });
  id = server.hear();
  REQUIRE(id.find("unique:127.0.0.1:") == 0);
  return server;
}

// Ranks 0 and 1 of a world, which meet at `id`.
void start_two(Job& job, const std::string& id, int world, const RankProcess::Body& body) {
  for (const int rank : {0, 1}) {
    JoinOptions options = job.options(rank, world);
    options.rendezvous = id;
    job.ranks.emplace_back(options, body);
  }
}

TEST_CASE("fault 9: the process that serves the rendezvous is killed: the group at work goes on, and can be split") {
  std::string id;
  RankProcess server = serve_id(id);
  Job job;
  start_two(job, id, 2, [](Here& here) {
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

TEST_CASE("fault 9: the process that serves the rendezvous is killed while a rank is missing: the start ends at once") {
  std::string id;
  RankProcess server = serve_id(id);
  Job job;
  start_two(job, id, 3, [](Here& here) { here.say(outcome([&] { Communicator::join(here.options); })); });
  for (RankProcess& rank : job.ranks) CHECK(rank.hear(500) == "");  // it waits
  server.signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  for (RankProcess& rank : job.ranks) {
    const std::string said = rank.hear();
    CAPTURE(said);
    CHECK(said.find("BOOTSTRAP [") == 0);
    check_within(9, ms_since(killed), 2'000);
  }
}

}  // namespace rondo::testing
