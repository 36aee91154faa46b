// Groups made and ended in every way there is, one after the other: descriptors, threads, mappings and memory are back.
// --seeds=N: cycles.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

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
  std::vector<float> values(10'000, 1);
  group.all_reduce(values.data(), values.data(), values.size(), DType::kFloat32);
  if (values.back() != static_cast<float>(group.size())) throw Exception(ErrorCode::kInternal, "a wrong sum");
  int sent = 1, got = 0;
  group.sendrecv(&sent, 1, 1 - group.rank(), &got, 1, 1 - group.rank(), DType::kInt32);
}

// --- the ways

void in_good_order(const JoinOptions& options) {
  Communicator group = Communicator::join(options);
  work(group);
  Communicator again = group.split(0);
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

void by_an_abort(const JoinOptions& options) {
  Communicator group = Communicator::join(options);
  expect(outcome([&] {
           work(group);
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

constexpr void (*kWays[])(const JoinOptions&) = {in_good_order, by_a_mismatch, by_an_abort, settings_differ,
                                                 rank_missing};

}  // namespace

TEST_CASE("groups that are made and end in every way, failed starts among them, leave nothing behind") {
  const uint64_t cycles = seed_range(kCycles).second;
  Job job;
  job.start(2, [&](Here& here) {
    ::alarm(kLongestSeconds);
    Resources before;
    const std::string meeting = here.options.rendezvous;
    for (uint64_t i = 0; i < kWarmUp + cycles; ++i) {
      if (i == kWarmUp) before = Resources::now();
      here.options.rendezvous = fmt::format("{}-{}", meeting, i);
      kWays[i % std::size(kWays)](here.options);
      if (i % 100 == 0) here.say("alive");
    }
    const Resources after = Resources::now();
    here.say(fmt::format(
        "{} {} {} {}", after.descriptors - before.descriptors, after.threads - before.threads,
        after.mappings <= before.mappings + kSpareMappings ? "flat" : "grown",
        after.resident_bytes <= before.resident_bytes + kSpareBytes
            ? "flat"
            : fmt::format("{} bytes more in {} cycles", after.resident_bytes - before.resident_bytes, cycles)));
  });
  for (RankProcess& rank : job.ranks) {
    std::string said = "alive";
    while (said == "alive") said = rank.hear(kLineMs);
    CHECK(said == "0 0 flat flat");
  }
}

}  // namespace rondo::testing
