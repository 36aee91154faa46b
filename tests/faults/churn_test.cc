// Groups made and ended in every way there is, one after the other, and a group that goes on again and again:
// descriptors, threads, mappings and memory are back. --seeds=N: cycles.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/arguments.h"
#include "tests/faults/ranks.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kWarmUp = 30;
constexpr uint64_t kCycles = 240;
// What an allocator and the C library may keep for good, however many cycles there were.
constexpr size_t kSpareMappings = 8;
constexpr size_t kSpareBytes = 4 << 20;
// For a long run: an hour, and ten minutes for one line.
constexpr unsigned kLongestSeconds = 3'600;
constexpr int kLineMs = 600'000;

void expect(const std::string& said, const std::string& start) {
  if (said.find(start) != 0) throw Exception(ErrorCode::kInternal, "instead of " + start + ": " + said);
}

void work(Communicator& group) {
  sum_ones(group, 10'000);
  if (group.size() == 1) return;
  int sent = 1, got = 0;
  group.sendrecv(&sent, 1, 1 - group.rank(), &got, 1, 1 - group.rank(), DType::kInt32);
}

// --- the ways

void in_good_order(const JoinOptions& options) {
  Communicator group = Communicator::join(options);
  work(group);
  Communicator again = group.split(0), alone = group.split(group.rank());
  work(again);
}

// The other rank may be anywhere in its work when it hears.

void by_a_mismatch(const JoinOptions& options) {
  Communicator group = Communicator::join(options);
  std::vector<float> values(1'000);
  const uint64_t count = options.rank == 0 ? 900 : 901;
  expect(outcome([&] {
           work(group);
           group.all_reduce(values.data(), values.data(), count, DType::kFloat32);
         }),
         "MISMATCH [0,1] ");
}

// Amid Works that nobody waits for.
void by_an_abort(const JoinOptions& options) {
  std::vector<float> values(300'000);
  Communicator group = Communicator::join(options);
  expect(outcome([&] {
           work(group);
           const Work first = group.all_reduce_async(values.data(), values.data(), values.size(), DType::kFloat32);
           if (options.rank == 0) group.abort("enough");
           group.barrier();
         }),
         "ABORTED [0] ");
}

void settings_differ(const JoinOptions& options) {
  JoinOptions different = options;
  if (options.rank == 1) different.config.slice_bytes = 128 * 1024;
  expect(outcome([&] { Communicator::join(different); }), "BOOTSTRAP [1] ");
}

void rank_missing(const JoinOptions& options) {
  JoinOptions larger = options;
  larger.world = 3;
  larger.config.start_timeout_ms = 40;
  expect(outcome([&] { Communicator::join(larger); }), "BOOTSTRAP [");
}

void threads_of_one_process(const JoinOptions&) {
  std::vector<Communicator> ranks = Communicator::inproc(4);
  std::vector<std::vector<float>> values(ranks.size(), std::vector<float>(1000, 1));
  std::vector<Work> works;
  for (size_t r = 0; r < ranks.size(); ++r) {
    works.push_back(ranks[r].all_reduce_async(values[r].data(), values[r].data(), 1000, DType::kFloat32));
  }
  for (Work& one : works) one.wait();
}

constexpr void (*kWays[])(const JoinOptions&) = {in_good_order,   by_a_mismatch, by_an_abort,
                                                 settings_differ, rank_missing,  threads_of_one_process};

// --- what stays

// One cycle after the other, of which the first ones make what is kept; then what there is more than before.
std::string grown_by(Here& here, uint64_t cycles, const std::function<void(uint64_t)>& cycle) {
  ::alarm(kLongestSeconds);
  Resources before;
  for (uint64_t i = 0; i < kWarmUp + cycles; ++i) {
    if (i == kWarmUp) before = Resources::settled();
    cycle(i);
    if (i % 100 == 0) here.say("alive");
  }
  const Resources after = Resources::settled();
  // What a rank that leaves has opened may close a moment later than it was counted.
  const auto more = [](size_t now, size_t then) { return now > then ? now - then : 0; };
  const size_t bytes = more(after.resident_bytes, before.resident_bytes);
  return fmt::format("{} {} {} {}", more(after.descriptors, before.descriptors), more(after.threads, before.threads),
                     more(after.mappings, before.mappings) <= kSpareMappings ? "flat" : "grown",
                     bytes <= kSpareBytes ? "flat" : fmt::format("{} bytes more in {} cycles", bytes, cycles));
}

void expect_flat(Job& job) {
  for (RankProcess& rank : job.ranks) {
    std::string said = "alive";
    while (said == "alive") said = rank.hear(kLineMs);
    CHECK(said == "0 0 flat flat");
  }
}

}  // namespace

TEST_CASE("groups that are made and end in every way, failed starts among them, leave nothing behind") {
  const uint64_t cycles = seed_range(kCycles).second;
  Job job;
  job.start(2, [&](Here& here) {
    const std::string meeting = here.options.rendezvous;
    here.say(grown_by(here, cycles, [&](uint64_t i) {
      here.options.rendezvous = fmt::format("{}-{}", meeting, i);
      here.options.config.transport = i / std::size(kWays) % 2 == 0 ? "auto" : "tcp";
      kWays[i % std::size(kWays)](here.options);
    }));
  });
  expect_flat(job);
}

// Rank 1 leaves and comes again as a newcomer, in each cycle; rank 0 goes on for all of them.
TEST_CASE("fault 72: a group that loses a rank and takes it in again, many times, grows by nothing") {
  const uint64_t cycles = seed_range(kCycles).second / 8;
  const TempFolder folder;
  for (const char* transport : {"auto", "tcp"}) {
    CAPTURE(transport);
    Config config = fault_config(transport);
    Job job;
    job.start(
        2,
        [&](Here& here) {
          using namespace std::chrono_literals;
          here.options.newcomers = "unix://" + folder.path(transport);
          JoinOptions newcomer = here.options;
          newcomer.rank = newcomer.world = -1;
          newcomer.rendezvous.clear();
          Communicator group;
          if (here.rank() == 0) {
            here.options.world = 1;
            group = Communicator::join(here.options);
          }
          const std::string grown = grown_by(here, cycles, [&](uint64_t step) {
            group = here.rank() == 0 ? group.grow(1, 10s) : Communicator::join(newcomer);
            work(group);
            {
              Communicator again = group.split(0);
              work(again);
            }
            group.commit(static_cast<int64_t>(step));
            if (here.rank() == 1) return group.destroy();
            expect(outcome([&] { group.barrier(); }), "PEER_LEFT [1] ");
            group = group.shrink(10s);
            work(group);
            if (group.committed() != static_cast<int64_t>(step))
              throw Exception(ErrorCode::kInternal, "a step is lost");
          });
          here.say(grown);
        },
        config);
    expect_flat(job);
  }
}

}  // namespace rondo::testing
