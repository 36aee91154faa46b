// A job takes in new processes. Where a rank or a newcomer dies meanwhile, the living ranks hear of it and go on with
// the right sums. Deaths at every moment: tests/simulation; jobs that grow when nobody dies: tests/life.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rondo/dist_opt.h"
#include "rondo/interrupt.h"
#include "tests/faults/ranks.h"
#include "tests/support/bytes.h"
#include "tests/support/sockets.h"
#include "transport/rendezvous/door.h"
#include "transport/rendezvous/launch.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kCount = 20'000;
constexpr int kNewcomer = 100;  // what one adds to a sum

// "<sum> of <size> as <rank> epoch <epoch>", where each has added `own`.
std::string state_of(Communicator& group, int own) {
  std::vector<float> in(kCount, static_cast<float>(own)), out(kCount);
  group.all_reduce(in.data(), out.data(), kCount, DType::kFloat32);
  const bool same = std::all_of(out.begin(), out.end(), [&](float value) { return value == out[0]; });
  return fmt::format("{} of {} as {} epoch {}", same ? out[0] : -1, group.size(), group.rank(), group.epoch());
}

// Members and newcomers that know one address.
class GrowingJob {
 public:
  explicit GrowingJob(std::string address = "") : address_(std::move(address)) {
    if (address_.empty()) address_ = "unix://" + folder_.path("door");
  }

  void start(int world, const RankProcess::Body& body) {
    for (int rank = 0; rank < world; ++rank) start({job_.options(rank, world, config)}, body);
  }
  void start_newcomer(const RankProcess::Body& body) {
    JoinOptions options = job_.options(-1, -1, config);
    options.rendezvous.clear();
    start(options, body);
  }
  RankProcess& operator[](int rank) { return job_[rank]; }
  // Rank 0 hears newcomers, at the address that a job has by itself.
  bool is_served() const { return std::filesystem::exists(folder_.path("door")); }
  Config config = fault_config();

 private:
  void start(JoinOptions options, const RankProcess::Body& body) {
    options.newcomers = address_;
    job_.ranks.emplace_back(options, body);
  }

  TempFolder folder_;
  std::string address_;
  Job job_;
};

void await_newcomers(Communicator& group, int count) {
  eventually([&] { return group.newcomers() >= count; });
}

// Local SGD in fragments over 3 ranks, of which rank 1 dies `dies_after` microseconds into its step `dies_in`; then a
// newcomer. Each rank pulls the parameters to a point of its own.
struct LocalSteps {
  static constexpr uint64_t kGrowAt = 16, kSteps = 28;
  uint64_t dies_in;
  std::chrono::microseconds dies_after;

  DistOpt made(Communicator& group) {
    DistOptOptions options;
    options.exchange = Exchange::kLocalSgd;
    options.every = 4;
    options.outer_delay = 1;
    options.outer_fragments = 2;
    options.outer_wire = WireFormat::kInt4;
    options.outer_momentum = 0.25f;
    std::vector<NamedGradient> list;
    for (size_t t = 0; t < parameters.size(); ++t) {
      list.push_back({fmt::format("t{}", t), parameters[t].data(), parameters[t].data(), parameters[t].size()});
    }
    return DistOpt(group, list, options);
  }
  void train_until(DistOpt& optimizer, Communicator& group, uint64_t steps, int own, bool dies) {
    std::thread killer;
    while (optimizer.steps() < steps) {
      if (killer.joinable()) killer.join();  // it dies in one step, or after it
      if (dies && optimizer.steps() == dies_in) {
        killer = std::thread([this] {
          std::this_thread::sleep_for(dies_after);
          ::raise(SIGKILL);
        });
        dies = false;
      }
      try {
        optimizer.step([own](const NamedGradient& g) {
          for (uint64_t i = 0; i < g.count; ++i) g.parameter[i] += 0.25f * (static_cast<float>(own) - g.parameter[i]);
        });
      } catch (const Exception& e) {
        if (e.code() != ErrorCode::kPeerLost && e.code() != ErrorCode::kAborted) throw;
        group = group.shrink(20s);
        optimizer.regroup(group);
      }
    }
  }
  // "<number of ranks> <hash of what all ranks must have alike>, trained"
  static std::string state_of(DistOpt& optimizer, Communicator& group) {
    size_t hash = 0;
    bool between = true;
    for (const DistOptState::Tensor& tensor : optimizer.save().tensors) {
      for (const std::vector<float>* values : {&tensor.outer, &tensor.momentum}) {
        const std::string_view bytes(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float));
        hash = hash * 31 + std::hash<std::string_view>()(bytes);
      }
      for (const float value : tensor.outer) between = between && value > 0.5f && value < 4;
    }
    return fmt::format("{} {} {}", group.size(), hash, between ? "trained" : "not trained");
  }

  std::vector<std::vector<float>> parameters = {std::vector<float>(5000, -8), std::vector<float>(300, -8)};
};

// While it lives the thread that made it hardly runs, for so long at most.
class Slowed {
 public:
  explicit Slowed(std::chrono::milliseconds most) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(::sched_getcpu(), &own);
    REQUIRE(::sched_setaffinity(0, sizeof own, &own) == 0);
    other_ = std::thread([this, most] {  // of this core, too
      const auto until = std::chrono::steady_clock::now() + most;
      while (!over_.load() && std::chrono::steady_clock::now() < until) continue;
    });
    const sched_param none{};
    REQUIRE(::sched_setscheduler(0, SCHED_IDLE, &none) == 0);
  }
  ~Slowed() {
    over_.store(true);
    other_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread other_;
};

// What rank 0 of a job of 2 sends in grow(1), with an invitation of any bytes.
void invite_with(Communicator& group, const std::string& invitation) {
  const CallOptions options{.purpose = Purpose::kGrow};
  const int32_t wish[] = {1, 0};  // one newcomer; not refused
  int32_t all[4];
  group.all_gather(wish, all, sizeof wish, DType::kUint8, options);
  std::string bytes = invitation;
  bytes.resize(1024);
  group.broadcast(bytes.data(), bytes.size(), DType::kUint8, 0, options);
}

}  // namespace

TEST_CASE("a rank of local SGD dies between outer steps, or in one, and a newcomer comes: equal bits on all ranks") {
  // An outer step begins in steps 9, 11 and 13; the one before ends in steps 10 and 12.
  for (const LocalSteps& local :
       {LocalSteps{8, 0us}, LocalSteps{9, 30us}, LocalSteps{10, 50us}, LocalSteps{11, 150us}, LocalSteps{12, 300us}}) {
    CAPTURE(local.dies_in);
    GrowingJob job;
    job.start(3, [local](Here& here) {
      LocalSteps own = local;
      Communicator group = Communicator::join(here.options);
      DistOpt optimizer = own.made(group);
      own.train_until(optimizer, group, LocalSteps::kGrowAt, here.rank(), here.rank() == 1);
      await_newcomers(group, 1);
      group = group.grow(1);
      optimizer.regroup(group);
      own.train_until(optimizer, group, LocalSteps::kSteps, here.rank(), false);
      here.say(LocalSteps::state_of(optimizer, group));
      here.await();
    });
    job.start_newcomer([local](Here& here) {
      LocalSteps own = local;
      Communicator group = Communicator::join(here.options);
      DistOpt optimizer = own.made(group);
      here.say(fmt::format("in {}", optimizer.steps()));
      own.train_until(optimizer, group, LocalSteps::kSteps, 4, false);
      here.say(LocalSteps::state_of(optimizer, group));
      here.await();
    });
    CHECK(job[3].hear() == fmt::format("in {}", LocalSteps::kGrowAt));
    const std::string first = job[0].hear();
    CHECK(first.starts_with("3 "));
    CHECK(first.ends_with(" trained"));
    for (const int r : {2, 3}) CHECK(job[r].hear() == first);
    for (const int r : {0, 2, 3}) job[r].tell("end");
  }
}

TEST_CASE("an interruption of rank 0 in grow() is rank 0's alone: the others hear who was") {
  GrowingJob job;
  job.start(2, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    if (here.rank() == 0) set_interrupt_function([](void*) { return 1; }, nullptr);
    here.say(outcome([&] { static_cast<void>(group.grow(1, 20s)); }));
    here.await();
  });
  CHECK(job[0].hear(10'000).find("INTERRUPTED") == 0);
  const std::string other = job[1].hear(10'000);
  CAPTURE(other);
  CHECK(other.find("ABORTED [0]") == 0);
  for (const int r : {0, 1}) job[r].tell("end");
}

TEST_CASE("fault 76: a rank dies while grow() waits for newcomers: rank 0, which waits for these, hears at once, too") {
  GrowingJob job;
  job.start(3, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say(here.timed([&] { group = group.grow(1, 60s); }));
    group = group.shrink(10s);
    here.say(state_of(group, here.rank()));
    here.await();
  });
  REQUIRE(eventually([&] { return job.is_served(); }));
  job[2].signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  for (const int r : {0, 1}) {
    const Timed said = timed_line(job[r].hear(20'000));
    CAPTURE(said.outcome);
    CHECK(said.begins(fmt::format("PEER_LOST [2] grow on rank {}: ", r)));
    CHECK(job[r].hear(20'000) == fmt::format("1 of 2 as {} epoch 1", r));
  }
  check_within(76, ms_since(killed), 15'000);
  for (const int r : {0, 1}) job[r].tell("end");
}

TEST_CASE("a newcomer that dies when it is admitted, and a rank that comes late to the start: it hears of the end") {
  GrowingJob job;
  job.start(3, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    await_newcomers(group, 1);
    std::optional<Slowed> slowed;
    if (here.rank() == 2) slowed.emplace(1s);
    const auto begin = std::chrono::steady_clock::now();
    group = group.grow(1, 5s);
    here.say(ms_since(begin) < 10'000 ? state_of(group, here.rank()) : "late");
    here.await();
  });
  job.start_newcomer([](Here& here) {
    const Launch launch = find_launch({-1, -1, "", here.options.job_id, here.options.newcomers}, here.options.config);
    const auto limit = std::chrono::milliseconds(here.options.config.start_timeout_ms);
    await_seat(launch, here.options.config, std::chrono::steady_clock::now() + limit);
    ::raise(SIGKILL);
  });
  for (int r = 0; r < 3; ++r) CHECK(job[r].hear(30'000) == fmt::format("3 of 3 as {} epoch 1", r));
  for (int r = 0; r < 3; ++r) job[r].tell("end");
}

TEST_CASE("what is refused, and a number of newcomers that does not come") {
  GrowingJob job;
  job.start(2, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say(outcome([&] { group.grow(0); }));
    here.say(outcome([&] { group.grow(1, -1ms); }));
    here.say(outcome([&] { group.grow(1, 50ms); }));
    here.say(fmt::format("{} {}", group.newcomers(), group.epoch()));
    Communicator copy = group.dup();
    here.say(outcome([&] { copy.grow(1); }));
    here.say(outcome([&] { group.grow(here.rank()); }));
    here.say(outcome([&] { group.grow(1, here.rank() == 0 ? 50ms : -1ms); }));
    here.say(outcome([&] { group.grow(1 + here.rank(), 50ms); }).substr(0, 14));
  });
  for (int r = 0; r < 2; ++r) {
    const std::string on = fmt::format("grow on rank {}: ", r);
    CHECK(job[r].hear() == "INVALID [] " + on + "newcomers is 0; it must be 1 to 1000000");
    CHECK(job[r].hear() ==
          "INVALID [] " + on + "timeout is -1 ms; it must be positive, or 0 for RONDO_START_TIMEOUT_MS");
    CHECK(job[r].hear().find("TIMEOUT [] " + on + "0 of 1 newcomers came within 50 ms at RONDO_JOIN=\"unix://") == 0);
    CHECK(job[r].hear() == "0 0");
    CHECK(job[r].hear() == "INVALID [] " + on + "only the communicator of join() takes in newcomers, and its epochs");
    const std::string by_count = job[r].hear(), by_timeout = job[r].hear();  // what one rank refuses, all do
    CHECK(by_count.find(r == 0 ? "INVALID [] " + on + "newcomers is 0" : "INVALID [0] " + on + "rank 0 (") == 0);
    CHECK(by_timeout.find(r == 1 ? "INVALID [] " + on + "timeout is -1 ms" : "INVALID [1] " + on + "rank 1 (") == 0);
    CHECK(job[r].hear() == "MISMATCH [0,1]");
  }
}

TEST_CASE("an invitation of rank 0 with an unknown error code, or texts of impossible lengths, is malformed") {
  const auto invitation = [](uint16_t refusal) {
    return ByteWriter().u16(refusal).short_text("a job", 64).short_text("nobody came", 64).take();
  };
  constexpr auto kTimeout = static_cast<uint16_t>(ErrorCode::kTimeout);
  const std::string long_text = ByteWriter().u16(kTimeout).u16(5000).take();
  const std::string invitations[] = {invitation(kTimeout), invitation(kErrorCodes), invitation(0xffff), long_text};
  GrowingJob job;
  job.start(2, [&](Here& here) {
    Communicator group = Communicator::join(here.options);
    for (const std::string& bytes : invitations) {
      here.say(outcome([&] { here.rank() == 0 ? invite_with(group, bytes) : void(group.grow(1, 50ms)); }));
    }
    here.say(state_of(group, here.rank() + 1));
  });
  CHECK(job[1].hear() == "TIMEOUT [] grow on rank 1: nobody came");
  for (int i = 0; i < 3; ++i) CHECK(job[1].hear() == "PROTOCOL [] grow on rank 1: rank 0's invitation is malformed");
  CHECK(job[1].hear() == "3 of 2 as 1 epoch 0");
  for (int i = 0; i < 4; ++i) CHECK(job[0].hear() == "ok");
  CHECK(job[0].hear() == "3 of 2 as 0 epoch 0");
}

TEST_CASE("fault 39: grow() of another number of newcomers on one rank, while they wait: both know at once") {
  GrowingJob job;
  job.start(2, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    await_newcomers(group, 2);
    here.say(here.timed([&] { group.grow(1 + here.rank()); }));
    here.await();
  });
  for (int i = 0; i < 2; ++i) job.start_newcomer([](Here& here) { Communicator::join(here.options); });
  for (int r = 0; r < 2; ++r) {
    const Timed said = timed_line(job[r].hear(30'000));
    CAPTURE(said.outcome);
    CHECK(said.begins(fmt::format("MISMATCH [0,1] grow on rank {}: rank 0 (host ", r)));
    CHECK(said.has(") takes in 1 newcomers, rank 1 (host "));
    check_within(39, said.elapsed_ms, 1'500);
  }
}

TEST_CASE("newcomers() counts those that come to an address with a name, and grow() takes them in") {
  GrowingJob job(fmt::format("tcp://localhost:{}", free_port()));
  job.start(2, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    if (!eventually([&] { return group.newcomers() == 1; })) return here.say("no newcomer is heard");
    group = group.grow(1, 5s);
    here.say(state_of(group, here.rank()));
  });
  job.start_newcomer([](Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say(state_of(group, kNewcomer));
  });
  for (int r = 0; r < 3; ++r) CHECK(job[r].hear(30'000) == fmt::format("101 of 3 as {} epoch 1", r));
}

TEST_CASE("a newcomer that nobody takes in gives up, and says where it asked; a wrong address is refused") {
  GrowingJob job;
  job.config.start_timeout_ms = 200;
  job.start_newcomer([](Here& here) { here.say(outcome([&] { Communicator::join(here.options); })); });
  CHECK(job[0].hear().find("TIMEOUT [] no rank took this process in within ") == 0);
  GrowingJob wrong("tcp://host:0");
  wrong.start_newcomer([](Here& here) { here.say(outcome([&] { Communicator::join(here.options); })); });
  CHECK(wrong[0].hear().find("INVALID [] ") == 0);
}

}  // namespace rondo::testing
