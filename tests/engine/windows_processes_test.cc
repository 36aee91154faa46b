// Plans over windows: ranks as processes of one host, whose windows are memory that all of them map.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "ring/base/types.h"
#include "tests/engine/cases.h"
#include "tests/engine/said.h"
#include "tests/engine/window_cases.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

RankGroup shape_of(int world) {
  RankGroup shape = ranks_over("shm", world);  // anything else is an error
  shape.config.staging_bytes = 64 * 1024;      // many rounds
  return shape;
}

constexpr int kWorld = RONDO_TEST_WORLD;  // BUILD says which

// Fewer of them where many ranks take turns on few cores.
std::vector<uint64_t> counts() {
  if (kWorld > 3) return {1, kWorld + 1, 8'191};
  return usual_counts(kWorld, 40'011);
}

}  // namespace

TEST_CASE("plans: every collective over windows gives the reference result: staged, pulled, registered by all") {
  // Proves: a window is found, bound and kept in other processes, at the place that its owner means.
  CHECK(run_processes(shape_of(kWorld), [](Communicator& group) {
          expect(group.topology().one_island(), "the ranks share no memory");
          run_over_windows(group, counts());
        }) == "");
}

TEST_CASE("buffers: registered by all, some or none of the ranks") {
  // Proves: all ranks choose one plan from what all have told, whatever each has.
  CHECK(run_processes(shape_of(kWorld), [](Communicator& group) { run_mixed_registration(group); }) == "");
}

// "all_gather of 1048576 bytes among 4 ranks: registered (...)" is said, of any size.
bool says(const std::string& text, Collective collective, const char* algorithm) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(fmt::format(" {} of ", collective_name(collective))) != std::string::npos &&
        line.find(fmt::format(" ranks: {} (", algorithm)) != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST_CASE("buffers: large calls use those that all ranks registered where they lie, and others as if nobody had") {
  // Proves: the ranks meet before they take to links, of every collective; and what runs may change with every call.
  RankGroup shape = shape_of(kWorld);
  shape.config.debug = "info";
  CHECK(run_processes(shape, [](Communicator& group) {
          const Said said;
          run_large_in_turns(group);
          const std::string in_turns = said.text();
          // One kind of call once more: it asks again after a while.
          RegisteredMemory registered(group);
          CollectiveCase gathered;
          gathered.collective = Collective::kAllGather;
          gathered.world = kWorld;
          gathered.dtype = DType::kFloat64;
          gathered.count = (1 << 19) / kWorld / sizeof(double);
          run_case(group, gathered);
          for (int i = 0; i < 40; ++i) run_case(group, gathered, Algorithm::kAuto, &registered);
          if (group.rank() != 0) return;
          expect(says(said.text().substr(in_turns.size()), Collective::kAllGather, "registered"), said.text());
          const std::string& text = in_turns;
          for (int i = 0; i < kCollectives; ++i) {
            const auto collective = static_cast<Collective>(i);
            if (collective == Collective::kBarrier || collective_scans(collective)) continue;
            expect(says(text, collective, "registered"),
                   fmt::format("{} never: {}", collective_name(collective), text));
            const Algorithm plain = group.algorithm_for(collective, (1 << 20) / kWorld, DType::kUint8);
            expect(plain != Algorithm::kRegistered, fmt::format("{} of plain buffers", collective_name(collective)));
            expect(group.algorithm_for(collective, 1 << 20, DType::kUint8, Op::kSum, true) == Algorithm::kRegistered,
                   collective_name(collective));
          }
        }) == "");
}

TEST_CASE("buffers: more kinds of large calls than a rank remembers, registered and plain in turns") {
  // Proves: what is forgotten, and when, is the same on all ranks, also where links are not there yet; ranks that
  // remember otherwise wait for each other until their deadline.
  constexpr uint64_t kFirst = 256 * 1024, kKinds = 1100;
  RankGroup shape = shape_of(kWorld);
  shape.config.timeout_ms = 20'000;
  CHECK(run_processes(shape, [](Communicator& group) {
          const uint64_t world = static_cast<uint64_t>(group.size());
          const uint64_t most = kFirst / world + kKinds;
          std::vector<std::byte> plain_in(most), plain_out(most * world), exchanged(most * world);
          auto* in = static_cast<std::byte*>(group.allocate(most));
          auto* out = static_cast<std::byte*>(group.allocate(most * world));
          const auto gather = [&](uint64_t kind, bool registered) {
            const uint64_t count = kFirst / world + 1 + kind;
            std::byte* from = registered ? in : plain_in.data();
            std::byte* to = registered ? out : plain_out.data();
            from[count - 1] = static_cast<std::byte>(kind + static_cast<uint64_t>(group.rank()));
            group.all_gather(from, to, count, DType::kUint8);
            for (uint64_t r = 0; r < world; ++r) {
              expect(to[(r + 1) * count - 1] == static_cast<std::byte>(kind + r), "a wrong block");
            }
          };
          for (uint64_t kind = 0; kind < kKinds; ++kind) {
            gather(kind, kind % 16 == 15);
            // The 1,024th plain kind, by links that nobody has used yet.
            if (kind == 1090) {
              group.all_to_all(plain_out.data(), exchanged.data(), kFirst / world + 1, DType::kUint8);
            }
          }
          for (uint64_t kind = 0; kind < 8; ++kind) gather(kind, false);
        }) == "");
}

TEST_CASE("buffers: RONDO_SINGLE_COPY=on and off give the same results from plain, registered and mixed buffers") {
  // Proves: whatever the setting makes of a call without an algorithm, every rank makes the same of it.
  for (const char* single_copy : {"on", "off"}) {
    CAPTURE(single_copy);
    RankGroup shape = shape_of(kWorld);
    shape.config.single_copy = single_copy;
    CHECK(run_processes(shape, [](Communicator& group) {
            RegisteredMemory registered(group);
            for (const CollectiveCase& what : all_shapes({kWorld, {20'011}, {kWorld / 2}})) {
              for (const bool mine : {false, true, group.rank() % 2 == 0}) {
                run_case(group, what, Algorithm::kAuto, mine ? &registered : std::pmr::get_default_resource());
              }
            }
          }) == "");
  }
}

TEST_CASE("stores: RONDO_SHARED_STORES=streamed gives the same results, over windows and over links and streams") {
  RankGroup shape = shape_of(kWorld);
  shape.config.shared_stores = "streamed";
  shape.config.staging_bytes = 1024 * 1024;
  CHECK(run_processes(shape, [](Communicator& group) {
          // Blocks of several streamed pieces in every world; less in large ones, which are slow under sanitizers.
          constexpr uint64_t kMany = kWorld <= 3 ? 100'003 : 30'011;
          run_over_windows(group, {1237, kMany});
          run_by_every_algorithm(group, all_shapes({kWorld, {kMany}, {0}}));
          // Streams carry messages.
          std::vector<int32_t> sent(300'000), received(sent.size());
          std::iota(sent.begin(), sent.end(), group.rank());
          const int next = (group.rank() + 1) % kWorld, before = (group.rank() + kWorld - 1) % kWorld;
          group.sendrecv(sent.data(), sent.size(), next, received.data(), received.size(), before, DType::kInt32);
          std::iota(sent.begin(), sent.end(), before);
          expect(received == sent, "a wrong message");
        }) == "");
}

TEST_CASE("buffers: a plan that the buffers do not allow is refused on all ranks, and the communicator goes on") {
  CHECK(run_processes(shape_of(kWorld), [](Communicator& group) { run_refusals(group); }) == "");
}

}  // namespace rondo::testing
