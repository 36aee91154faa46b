// A job takes in new processes. Where ranks or newcomers die meanwhile, the living ranks go on with the right sums,
// with the newcomers or without them.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "rondo/dist_opt.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr uint64_t kCount = 20'000;
constexpr int64_t kLongerThanItLives = 500;  // milliseconds, of a rank that is to die in grow()
constexpr int kNewcomer = 100;               // what one adds to a sum, plus its rank

// "<sum> of <size> as <rank> epoch <epoch>", where each has added `own`.
std::string state_of(Communicator& group, int own) {
  std::vector<float> in(kCount, static_cast<float>(own)), out(kCount);
  group.all_reduce(in.data(), out.data(), kCount, DType::kFloat32);
  const bool same = std::all_of(out.begin(), out.end(), [&](float value) { return value == out[0]; });
  return fmt::format("{} of {} as {} epoch {}", same ? out[0] : -1, group.size(), group.rank(), group.epoch());
}

// A port of loopback; nobody listens there at the moment.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(socket, generic, bytes) == 0);
  REQUIRE(::getsockname(socket, generic, &bytes) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

// Members and newcomers that know one address.
class GrowingJob {
 public:
  explicit GrowingJob(const char* transport = "auto", std::string address = "") : address_(std::move(address)) {
    config_ = fault_config();
    config_.transport = transport;
    if (address_.empty()) address_ = "unix://" + folder_.path("door");
  }

  void start(int world, const RankProcess::Body& body) {
    for (int rank = 0; rank < world; ++rank) {
      JoinOptions options = job_.options(rank, world, config_);
      options.newcomers = address_;
      job_.ranks.emplace_back(options, body);
    }
  }
  // Says "in" once it has been taken in, and after "sum" what the sum is.
  void start_newcomer(const RankProcess::Body& body = in_and_sum) {
    JoinOptions options = job_.options(-1, -1, config_);
    options.rendezvous.clear();
    options.newcomers = address_;
    job_.ranks.emplace_back(options, body);
  }
  RankProcess& operator[](int rank) { return job_[rank]; }
  Config& config() { return config_; }

  static void in_and_sum(Here& here) {
    Communicator group = Communicator::join(here.options);
    here.say(fmt::format("in {}", group.committed()));
    here.say(state_of(group, kNewcomer + group.rank()));
    here.await();
  }

 private:
  TempFolder folder_;
  std::string address_;
  Config config_;
  Job job_;
};

void await_newcomers(Communicator& group, int count) {
  while (group.newcomers() < count) std::this_thread::sleep_for(1ms);
}

void grow_by(Here& here, Communicator& group, int count) {
  await_newcomers(group, count);
  group.commit(7);
  const int own = here.rank();
  group = group.grow(count);
  here.say(state_of(group, own));
  here.await();
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
          ::kill(::getpid(), SIGKILL);
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

TEST_CASE("2 ranks take in 1, then 2 at once: ranks in the order of arrival, epoch and step are known to them") {
  for (const char* transport : {"auto", "tcp"}) {
    CAPTURE(transport);
    GrowingJob job(transport);
    job.start(2, [](Here& here) {
      Communicator group = Communicator::join(here.options);
      grow_by(here, group, 1);
      await_newcomers(group, 1);
      group = group.grow(1);
      here.say(state_of(group, here.rank()));
      here.await();
    });
    job.start_newcomer([](Here& here) {
      Communicator group = Communicator::join(here.options);
      here.say(fmt::format("in {}", group.committed()));
      here.say(state_of(group, kNewcomer + group.rank()));
      here.await();
      await_newcomers(group, 1);
      group = group.grow(1);
      here.say(state_of(group, kNewcomer + group.rank()));
      here.await();
    });
    CHECK(job[2].hear() == "in 7");
    for (int r = 0; r < 3; ++r) CHECK(job[r].hear() == fmt::format("103 of 3 as {} epoch 1", r));
    for (int r = 0; r < 3; ++r) job[r].tell("on");
    job.start_newcomer();
    CHECK(job[3].hear() == "in 7");
    for (int r = 0; r < 4; ++r) CHECK(job[r].hear() == fmt::format("206 of 4 as {} epoch 2", r));
    for (int r = 0; r < 4; ++r) job[r].tell("end");
  }
}

TEST_CASE("rank 0 dies, and a newcomer that waits takes its place by the next rank 0's word; over a port, too") {
  for (const std::string& address : {std::string(), fmt::format("tcp://127.0.0.1:{}", free_port())}) {
    CAPTURE(address);
    GrowingJob job("auto", address);
    job.start(3, [](Here& here) {
      Communicator group = Communicator::join(here.options);
      group.newcomers();
      here.say("ready");
      outcome([&] {
        while (true) group.barrier();
      });
      group = group.shrink(20s);
      grow_by(here, group, 1);
    });
    for (int r = 0; r < 3; ++r) REQUIRE(job[r].hear() == "ready");
    job.start_newcomer();
    std::this_thread::sleep_for(20ms);
    ::kill(job[0].pid(), SIGKILL);
    CHECK(job[3].hear() == "in 7");
    CHECK(job[1].hear() == "105 of 3 as 0 epoch 2");
    CHECK(job[2].hear() == "105 of 3 as 1 epoch 2");
    CHECK(job[3].hear() == "105 of 3 as 2 epoch 2");
    for (int r = 1; r < 4; ++r) job[r].tell("end");
  }
}

TEST_CASE("fault 76: a newcomer that dies while it is taken in: the ranks go on with it or without it, and soon") {
  int taken_in = 0;
  for (int delay = 0; delay < 12; ++delay) {
    CAPTURE(delay);
    GrowingJob job;
    job.start(2, [](Here& here) {
      Communicator group = Communicator::join(here.options);
      await_newcomers(group, 1);
      here.say("grow");
      std::string said;
      const std::string failed = outcome([&] {
        try {
          group = group.grow(1, 10s);
        } catch (const Exception& failure) {  // it died before it was asked
          if (failure.code() != ErrorCode::kTimeout) throw;
        }
        said = fmt::format("{} ", group.size());
        while (group.size() > 2) group.barrier();
      });
      if (said.empty()) return here.say(failed);
      if (group.size() > 2) group = group.shrink(20s);
      here.say(said + state_of(group, here.rank()));
      here.await();
    });
    job.start_newcomer([](Here& here) {
      Communicator group = Communicator::join(here.options);
      while (true) group.barrier();
    });
    for (int r = 0; r < 2; ++r) REQUIRE(job[r].hear() == "grow");
    std::this_thread::sleep_for(std::chrono::microseconds(3'000 * delay));
    ::kill(job[2].pid(), SIGKILL);
    const auto killed = Clock::now();
    for (int r = 0; r < 2; ++r) {
      const std::string said = job[r].hear();
      CAPTURE(said);
      CHECK(said.find(fmt::format("1 of 2 as {} epoch", r)) != std::string::npos);
      taken_in += said[0] == '3';
    }
    CHECK(ms_since(killed) < 15'000);
    for (int r = 0; r < 2; ++r) job[r].tell("end");
  }
  MESSAGE("taken in before it died: " << taken_in / 2 << " of 12");
}

TEST_CASE("fault 76: a rank that dies in grow(), each one, at many moments: the others agree on who goes on") {
  for (int victim = 0; victim < 3; ++victim) {
    for (int delay = 0; delay < 5; ++delay) {
      CAPTURE(victim);
      CAPTURE(delay);
      GrowingJob job;
      job.start(3, [=](Here& here) {
        Communicator group = Communicator::join(here.options);
        await_newcomers(group, 1);
        if (here.rank() == victim) {
          std::thread([delay] {
            std::this_thread::sleep_for(std::chrono::microseconds(4'000 * delay));
            ::raise(SIGKILL);
          }).detach();
        }
        std::string failed = outcome([&] { group = group.grow(1, 10s); });
        // Without the victim and the newcomer; to one that called late, grow() has thrown.
        const bool only_shrunk = failed == "ok" && group.size() == 2;
        if (failed == "ok" && !only_shrunk) failed = sums_until(group, kLongerThanItLives);
        if (failed != "ok") group = group.shrink(10s);
        const int living = group.size();
        here.say(fmt::format("{}: {}", living, state_of(group, here.rank())));
        here.await();
      });
      job.start_newcomer([](Here& here) {
        const std::string failed = outcome([&] {
          Communicator group = Communicator::join(here.options);
          if (sums_until(group, kLongerThanItLives) != "ok") group = group.shrink(10s);
          here.say(state_of(group, kNewcomer));
        });
        if (failed != "ok") here.say(failed);
        here.await();
      });
      std::vector<int> living{0, 1, 2};
      living.erase(living.begin() + victim);
      const std::string first = job[living[0]].hear(), second = job[living[1]].hear();
      CAPTURE(first);
      CAPTURE(second);
      const int sum = std::accumulate(living.begin(), living.end(), 0);
      CHECK(first[0] == second[0]);
      if (first[0] == '2') {
        CHECK(first.find(fmt::format("2: {} of 2 as 0", sum)) == 0);
        CHECK(second.find(fmt::format("2: {} of 2 as 1", sum)) == 0);
        ::kill(job[3].pid(), SIGKILL);  // it asks on
      } else {
        CHECK(first.find(fmt::format("3: {} of 3 as 0", sum + kNewcomer)) == 0);
        CHECK(second.find(fmt::format("3: {} of 3 as 1", sum + kNewcomer)) == 0);
        CHECK(job[3].hear().find(fmt::format("{} of 3 as 2", sum + kNewcomer)) == 0);
        job[3].tell("end");
      }
      for (const int r : living) job[r].tell("end");
    }
  }
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
    outcome([&] { group.grow(1 + here.rank(), 50ms); });  // rank 0 knows of its own call alone, at first
    here.say(outcome([&] {
               while (true) group.barrier();
             }).substr(0, 14));
  });
  for (int r = 0; r < 2; ++r) {
    const std::string on = fmt::format("grow on rank {}: ", r);
    CHECK(job[r].hear() == "INVALID [] " + on + "newcomers is 0; it must be 1 to 1000000");
    CHECK(job[r].hear() ==
          "INVALID [] " + on + "timeout is -1 ms; it must be positive, or 0 for RONDO_START_TIMEOUT_MS");
    CHECK(job[r].hear().find("TIMEOUT [] " + on + "0 of 1 newcomers came within 50 ms at RONDO_JOIN=\"unix://") == 0);
    CHECK(job[r].hear() == "0 0");
    CHECK(job[r].hear() == "INVALID [] " + on + "only the communicator of join() takes in newcomers, and its epochs");
    CHECK(job[r].hear() == "MISMATCH [0,1]");
  }
}

TEST_CASE("a newcomer that nobody takes in gives up, and says where it asked; a wrong address is refused") {
  GrowingJob job;
  job.config().start_timeout_ms = 200;
  job.start_newcomer([](Here& here) { here.say(outcome([&] { Communicator::join(here.options); })); });
  CHECK(job[0].hear().find("TIMEOUT [] no rank took this process in within ") == 0);
  GrowingJob wrong("auto", "tcp://host:0");
  wrong.start_newcomer([](Here& here) { here.say(outcome([&] { Communicator::join(here.options); })); });
  CHECK(wrong[0].hear().find("INVALID [] ") == 0);
}

TEST_CASE("memory of allocate() stays when the job grows") {
  GrowingJob job;
  job.start(2, [](Here& here) {
    Communicator group = Communicator::join(here.options);
    auto* data = static_cast<float*>(group.allocate(kCount * sizeof(float)));
    std::fill_n(data, kCount, static_cast<float>(here.rank()));
    await_newcomers(group, 1);
    group = group.grow(1);
    group.all_reduce(data, data, kCount, DType::kFloat32);
    here.say(fmt::format("{} {}", data[0], data[kCount - 1]));
    group.deallocate(data);
    here.await();
  });
  job.start_newcomer([](Here& here) {
    Communicator group = Communicator::join(here.options);
    std::vector<float> values(kCount, 5);
    group.all_reduce(values);
    here.say(fmt::format("{} {}", values[0], values[kCount - 1]));
    here.await();
  });
  for (int r = 0; r < 3; ++r) CHECK(job[r].hear() == "6 6");
  for (int r = 0; r < 3; ++r) job[r].tell("end");
}

}  // namespace rondo::testing
