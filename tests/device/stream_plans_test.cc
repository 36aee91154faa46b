// Programs for streams are made once and kept; of a plan that no stream can run nothing is kept.
#include "ring/engine/device/stream_plans.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include "ring/plan/peer_reach.h"
#include "rondo/error.h"

namespace rondo::testing {

TEST_CASE("a program is made once") {
  Topology topology;
  topology.host = {0, 0, 0};
  StreamPlans plans(1, topology, {0, 2, 1});
  const StreamPlans::Entry& entry = plans.get(Collective::kAllReduce, Algorithm::kRing, -1);
  CHECK(&entry == &plans.get(Collective::kAllReduce, Algorithm::kRing, -1));
  CHECK(entry.plan.rank == 1);
  CHECK(entry.program == lower(entry.plan));
  CHECK(entry.most_messages >= entry.program.messages);
}

// kMaxCallSteps, kMaxCallPasses and kMaxCallRefs are what the longest of these needs.
TEST_CASE("every collective of the most ranks fits into the arguments of a kernel, with both buffers staged") {
  constexpr int kWorld = kMaxDeviceRanks;
  Topology topology;
  topology.host.assign(kWorld, 0);
  topology.island.assign(kWorld, 0);
  std::vector<int> order(kWorld);
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::byte> memory(size_t{2} * kWorld * kWorld * sizeof(float));
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast,
        Collective::kReduce, Collective::kGather, Collective::kScatter, Collective::kAllToAll}) {
    for (const Algorithm algorithm : {Algorithm::kRegistered, Algorithm::kRing}) {
      if (algorithm == Algorithm::kRing && !ring_of_neighbors(collective)) continue;
      for (const int rank : {0, 1, kWorld - 1}) {
        CAPTURE(std::string(collective_name(collective)));
        CAPTURE(rank);
        StreamPlans plans(rank, topology, order);
        const StreamPlans::Entry& entry = plans.get(collective, algorithm, collective_has_root(collective) ? 1 : -1);
        Call call;
        call.collective = collective;
        call.input = memory.data();
        call.output = memory.data() + memory.size() / 2;
        call.count = kWorld;
        call.root = collective_has_root(collective) ? 1 : 0;
        const BufferPlace place{.data = memory.data(), .staged = memory.data()};
        DeviceCall made = {};
        made.slice = kWorld;
        CHECK_NOTHROW(
            bind_program(check_call(call, rank, kWorld), entry.plan, entry.program, entry.touched, place, place, made));
        CHECK(made.step_count > 0);
      }
    }
  }
}

TEST_CASE("a plan with scratch memory is refused each time") {
  Topology topology;
  topology.host = {0, 0, 0};
  StreamPlans plans(0, topology, {});
  for (int time = 0; time < 2; ++time) {
    CHECK_THROWS_AS(plans.get(Collective::kAllReduce, Algorithm::kStaged, -1), Exception);
  }
}

}  // namespace rondo::testing
