// Processes on one host, over loopback TCP or over shared memory (BUILD says which): every collective against its
// reference.
#include <doctest/doctest.h>

#include "ring/base/types.h"
#include "tests/engine/cases.h"
#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// Connections and slice sizes that differ from world to world, so that their pairs are all met.
RankGroup group_of(int world) {
  RankGroup group = ranks_over(world == 1 ? "auto" : RONDO_TEST_TRANSPORT, world);
  group.config.connections = world % 2 == 0 ? 1 : 3;
  group.config.slice_bytes = world % 4 < 2 ? 4096 : 64 * 1024;
  group.config.slices_per_chunk = static_cast<uint32_t>(1 + world % 5);
  return group;
}

}  // namespace

TEST_CASE("every collective gives the reference result on 1 to 8 processes, whatever its shape and algorithm") {
  // Proves: no count, root, algorithm, alignment or in-place form is wrong, and nothing beside the output is written.
  for (int world = 1; world <= 8; ++world) {
    CAPTURE(world);
    const auto cases = all_shapes({world, usual_counts(world, 8'191), {world / 2}});
    CHECK(run_processes(group_of(world), [&](Communicator& group) { run_by_every_algorithm(group, cases); }) == "");
  }
}

TEST_CASE("large buffers, that fill every slot several times over") {
  // Proves: flow control and reuse of slots, with every algorithm.
  for (const int world : {2, 3, 5, 8}) {
    CAPTURE(world);
    RankGroup shape = group_of(world);
    const auto cases = all_shapes({world, {300'007}, {world - 1}});
    CHECK(run_processes(shape, [&](Communicator& group) {
            for (size_t i = 0; i < cases.size(); ++i) {
              const auto algorithms = available_algorithms(cases[i].collective, group.topology());
              run_case(group, cases[i], algorithms[i % algorithms.size()]);
            }
          }) == "");
  }
}

TEST_CASE("every root") {
  // Proves: no rank is special to the collectives that have a root.
  for (const int world : {2, 5, 8}) {
    CAPTURE(world);
    const auto cases = all_shapes({world, {0, 1, 777}, all_ranks(world)});
    CHECK(run_processes(group_of(world), [&](Communicator& group) {
            for (const CollectiveCase& what : cases) {
              if (collective_has_root(what.collective)) run_case(group, what);
            }
          }) == "");
  }
}

TEST_CASE("every dtype with every op") {
  // Proves: the engine hands dtype, op, factor and world to the kernels, for every pair, in every algorithm.
  for (const int world : {2, 3, 4}) {
    CAPTURE(world);
    const auto cases = all_reductions(world);
    CHECK(run_processes(group_of(world), [&](Communicator& group) { run_by_every_algorithm(group, cases); }) == "");
  }
}

}  // namespace rondo::testing
