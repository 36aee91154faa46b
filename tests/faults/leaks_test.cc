// Descriptors, threads and mappings are back where they were, however a communicator ended.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "rondo/communicator.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

// Cycles before the first count: allocators and the C library keep what they made for the first ones.
constexpr int kWarmUp = 15;
constexpr int kCycles = 85;
// Mappings that an allocator may have added for good.
constexpr size_t kSpareMappings = 8;

using Cycle = std::function<void(const JoinOptions& options)>;

void check_cycles(int world, int cycles, const Cycle& cycle) {
  Job job;
  job.start(world, [&](Here& here) {
    Resources before;
    const std::string meeting = here.options.rendezvous;
    for (int i = 0; i < kWarmUp + cycles; ++i) {
      if (i == kWarmUp) before = Resources::settled();
      here.options.rendezvous = fmt::format("{}-{}", meeting, i);
      cycle(here.options);
    }
    const Resources after = Resources::settled();
    here.say(fmt::format("{} {} {}", after.descriptors - before.descriptors, after.threads - before.threads,
                         after.mappings <= before.mappings + kSpareMappings ? "flat" : "grown"));
  });
  for (RankProcess& rank : job.ranks) CHECK(rank.hear(50'000) == "0 0 flat");
}

void work(Communicator& group) {
  std::vector<float> values(10'000, 1);
  group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32);
  int sent = 1, got = 0;
  const int world = group.size();
  group.sendrecv(&sent, 1, (group.rank() + 1) % world, &got, 1, (group.rank() + world - 1) % world, DType::kInt32);
}

}  // namespace

TEST_CASE("join, work, groups, destroy") {
  check_cycles(2, kCycles, [](const JoinOptions& options) {
    Communicator group = Communicator::join(options);
    work(group);
    Communicator half = group.split(group.rank());
    Communicator all = group.split(0);
    work(all);
  });
}

TEST_CASE("communicators that failed") {
  check_cycles(2, kCycles, [](const JoinOptions& options) {
    Communicator group = Communicator::join(options);
    work(group);
    std::vector<float> values(1000);
    outcome([&] {
      while (true) group.all_reduce(values.data(), values.data(), group.rank() == 0 ? 1000 : 999, DType::kFloat32);
    });
    outcome([&] { group.barrier(); });
  });
}

TEST_CASE("Works that nobody waited for, and an abort") {
  check_cycles(2, kCycles, [](const JoinOptions& options) {
    std::vector<float> values(300'000);
    Communicator group;
    // Either rank may be anywhere when the abort comes, in join() too.
    outcome([&] {
      group = Communicator::join(options);
      Call call;
      call.input = call.output = values.data();
      call.count = values.size();
      const Work first = group.start(call);
      const Work second = group.start(call);
      if (group.rank() == 0) group.abort("enough");
      group.barrier();
    });
    group.destroy();
  });
}

TEST_CASE("starts that failed") {
  check_cycles(1, 30, [](const JoinOptions& options) {
    JoinOptions alone = options;
    alone.world = 2;
    alone.config.start_timeout_ms = 30;
    const std::string said = outcome([&] { Communicator::join(alone); });
    if (said.find("BOOTSTRAP [1] ") != 0) throw Exception(ErrorCode::kInternal, said);
  });
}

TEST_CASE("ranks as threads of one process") {
  check_cycles(1, kCycles, [](const JoinOptions&) {
    std::vector<Communicator> ranks = Communicator::inproc(4);
    std::vector<Work> works;
    std::vector<std::vector<float>> values(ranks.size(), std::vector<float>(1000, 1));
    for (size_t r = 0; r < ranks.size(); ++r) {
      Call call;
      call.input = call.output = values[r].data();
      call.count = 1000;
      works.push_back(ranks[r].start(call));
    }
    for (Work& work : works) work.wait();
  });
}

}  // namespace rondo::testing
