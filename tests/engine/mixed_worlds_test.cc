// Needs root and iproute2 (tests/faults/hosts.h): 2 and 3 ranks on two hosts, with shared memory inside each and TCP
// between them: what is chosen there, wire formats, and groups. Every collective and algorithm: tests/life/hosts.life.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/engine/cases.h"
#include "tests/engine/window_cases.h"
#include "tests/engine/wire_cases.h"
#include "tests/faults/hosts.h"
#include "tests/faults/ranks.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// Neighbors in the ring on one host, or each on the other.
const std::vector<std::vector<int>> kPlacements{{0, 0, 1, 1, 1}, {1, 0, 1, 0, 1}};

Config mixed_config() {
  Config config = fault_config();
  config.timeout_ms = 50'000;  // a rank lives for a minute
  return config;
}

// Runs `body` on every rank, placed as host_of says; "" or what is wrong, by rank.
std::string run_hosts(const std::vector<int>& host_of, const std::function<void(Communicator&)>& body) {
  const Hosts hosts;
  Job job;
  hosts.start(
      job, host_of,
      [&body](Here& here) {
        Communicator group = Communicator::join(here.options);
        std::string said = "right";
        try {
          body(group);
        } catch (const std::exception& failure) {
          said = failure.what();
          group.abort(said);  // the others would wait for this rank
        }
        here.say(said);
      },
      mixed_config());
  std::string wrong;
  for (int rank = 0; rank < job.world(); ++rank) {
    const std::string said = job[rank].hear(60'000);
    if (said != "right") wrong += fmt::format("rank {}: {}\n", rank, said.empty() ? "said nothing" : said);
  }
  return wrong;
}

// One float32 sum in every algorithm that there is.
void run_sums(Communicator& group, uint64_t count, std::pmr::memory_resource* memory) {
  CollectiveCase what;
  what.world = group.size();
  what.count = count;
  for (const bool in_place : {false, true}) {
    what.in_place = in_place;
    run_case(group, what, Algorithm::kAuto, memory);
    for (const Algorithm algorithm : available_algorithms(what.collective, group.topology())) {
      run_case(group, what, algorithm, memory);
    }
  }
}

// What a float32 sum of so many elements is done by; and that it is right.
void expect_choice(Communicator& group, uint64_t count, Algorithm expected) {
  const Algorithm chosen = group.algorithm_for(Collective::kAllReduce, count, DType::kFloat32);
  expect(chosen == expected,
         fmt::format("{} elements are summed by {}, not {}", count, algorithm_name(chosen), algorithm_name(expected)));
  CollectiveCase what;
  what.world = group.size();
  what.count = count;
  run_case(group, what);
}

}  // namespace

TEST_CASE("sums: by every algorithm, plain and in wire formats, on two hosts of two ranks each") {
  for (const std::vector<int>& host_of : {std::vector<int>{0, 0, 1, 1}, {1, 0, 1, 0}}) {
    CAPTURE(host_of[0]);
    CHECK(run_hosts(host_of, [](Communicator& group) {
            run_sums(group, 262'147, std::pmr::get_default_resource());
            check_random_wire_calls(group, 46, 40);
          }) == "");
  }
}

TEST_CASE("sums: the hierarchical plan is chosen where it wins by the cost model, alike on all ranks") {
  // Proves: the choice knows which pairs share memory. By the model it wins from where direct exchanges end to where
  // the links are full.
  for (const std::vector<int>& host_of : kPlacements) {
    CAPTURE(host_of[0]);
    CHECK(run_hosts(host_of, [](Communicator& group) {
            expect_choice(group, 2, Algorithm::kDirect);
            expect_choice(group, 32 * 1024, Algorithm::kHierarchical);
          }) == "");
  }
}

TEST_CASE("groups: one of one island has plans over windows, one across islands has none") {
  // Proves: what a group may do follows from its own members.
  CHECK(run_hosts(kPlacements[1], [](Communicator& group) {
          const bool even = group.rank() % 2 == 0;
          Communicator island = group.split(even ? 0 : 1);
          expect(island.topology().one_island(), "the ranks of a host are no island");
          run_over_windows(island, {1, 1237});
          run_mixed_registration(island);
          Communicator across = group.split(group.rank() < 2 ? 0 : 1);
          expect(!across.topology().one_island(), "ranks of two hosts are an island");
          run_by_every_algorithm(across, all_shapes({across.size(), {1237}, {1}}));
        }) == "");
}

}  // namespace rondo::testing
