// Real executors on real stream links over a simulated network, in one thread: every delay, partial transfer and order
// of ranks comes from a seed. `cluster_test --seeds=10000 --first-seed=1` is the long run.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/types.h"
#include "ring/engine/call.h"
#include "ring/engine/cut.h"
#include "ring/engine/lane_run.h"
#include "ring/plan/build.h"
#include "tests/engine/arguments.h"
#include "tests/support/collective_check.h"
#include "tests/support/random.h"
#include "tests/support/sim_stream.h"
#include "transport/stream_link.h"

namespace rondo::testing {
namespace {

// Passes of the whole cluster without any progress after which it counts as hung: far beyond the longest simulated
// delay.
constexpr int kHungTicks = 2000;

struct Shape {
  int world = 2;
  uint32_t lanes = 1;
  int connections = 1;
  Config config;
};

// The links of all ranks, for every pair and lane, and what runs over them.
class Cluster {
 public:
  Cluster(const Shape& shape, uint64_t seed) : shape_(shape), random_(seed), network_(seed) {
    const auto world = static_cast<size_t>(shape.world);
    links_.resize(world * world * shape.lanes);
    SimShape wire;
    wire.capacity_bytes = 64 + random_.below(4096);
    wire.delay_ticks = static_cast<uint32_t>(random_.below(20));
    wire.lends = seed % 2 == 0;
    for (int a = 0; a < shape.world; ++a) {
      for (int b = a + 1; b < shape.world; ++b) {
        for (uint32_t lane = 0; lane < shape.lanes; ++lane) connect(a, b, lane, wire);
      }
    }
  }

  // Runs one operation on all ranks. "" or what went wrong. hang_is_fine: after a cut.
  std::string run(const CollectiveCase& what, Algorithm algorithm, uint64_t sequence) {
    std::vector<CollectiveRank> ranks;
    std::vector<Plan> plans(static_cast<size_t>(what.world));
    std::vector<Blocks> blocks(plans.size());
    std::vector<CheckedCall> calls;
    std::vector<std::vector<LaneRun>> lanes(plans.size());
    for (int r = 0; r < what.world; ++r) ranks.emplace_back(what, r);
    for (int r = 0; r < what.world; ++r) {
      calls.push_back(check_call(ranks[static_cast<size_t>(r)].call(), r, what.world));
      start(what, algorithm, sequence, r, calls.back(), plans[static_cast<size_t>(r)], blocks[static_cast<size_t>(r)],
            lanes[static_cast<size_t>(r)]);
    }
    const std::string trouble = drive(lanes);
    if (!trouble.empty()) {
      for (const auto& link : links_) {
        if (link) link->stop();
      }
      return trouble;
    }
    for (const CollectiveRank& rank : ranks) {
      if (std::string wrong = rank.check(); !wrong.empty()) return wrong;
    }
    return same_bits(what, ranks);
  }

  SimNetwork& network() { return network_; }
  int connections() const { return made_; }
  bool any_link_failed() const {
    for (const auto& link : links_) {
      if (link && link->error() != nullptr) return true;
    }
    return false;
  }

 private:
  std::unique_ptr<Link>& link(int from, int to, uint32_t lane) {
    const auto world = static_cast<size_t>(shape_.world);
    return links_[(static_cast<size_t>(from) * world + static_cast<size_t>(to)) * shape_.lanes + lane];
  }

  void connect(int a, int b, uint32_t lane, const SimShape& wire) {
    std::vector<std::unique_ptr<ByteStream>> here, there;
    for (int i = 0; i < shape_.connections; ++i) {
      auto connection = network_.connect(wire);
      here.push_back(std::move(connection.side[0]));
      there.push_back(std::move(connection.side[1]));
      ++made_;
    }
    link(a, b, lane) = make_stream_link(std::move(here), link_shape(shape_.config), fmt::format("rank {}", b));
    link(b, a, lane) = make_stream_link(std::move(there), link_shape(shape_.config), fmt::format("rank {}", a));
  }

  void start(const CollectiveCase& what, Algorithm algorithm, uint64_t sequence, int rank, const CheckedCall& call,
             Plan& plan, Blocks& blocks, std::vector<LaneRun>& lanes) {
    PlanRequest request;
    request.collective = what.collective;
    request.algorithm = algorithm;
    request.rank = rank;
    request.root = collective_has_root(what.collective) ? what.root : -1;
    request.lanes = static_cast<int>(shape_.lanes);
    request.topology.host.assign(static_cast<size_t>(what.world), 0);
    for (int r = 0; r < what.world; ++r) request.topology.host[static_cast<size_t>(r)] = r * 2 / what.world;
    request.scale_at_source = what.op == Op::kPremulSum;
    plan = build_plan(request);
    Binding binding;
    binding.plan = &plan;
    binding.cut = choose_cut(call, plan, shape_.config, request.topology);
    binding.cut.slice = 16 * (1 + sequence % 3);  // small cases are to have several slices and rounds too
    blocks = lay_out_blocks(call, plan, binding.cut);
    binding.blocks = &blocks;
    binding.combine = {call.dtype, call.op, call.scalar, static_cast<uint32_t>(what.world)};
    binding.element_bytes = dtype_bytes(call.dtype);
    binding.input = call.input;
    binding.output = call.output;
    binding.sequence = sequence;
    binding.fingerprint = 42 * sequence;
    lanes.resize(shape_.lanes);
    for (uint32_t lane = 0; lane < shape_.lanes; ++lane) {
      std::vector<Link*> to;
      for (const int peer : plan.peers) to.push_back(link(rank, peer, lane).get());
      lanes[lane].start(binding, lane, to);
    }
  }

  std::string drive(std::vector<std::vector<LaneRun>>& lanes) {
    int idle = 0;
    while (idle < kHungTicks) {
      bool moved = false;
      bool done = true;
      const size_t first = random_.below(lanes.size());
      for (size_t i = 0; i < lanes.size(); ++i) {
        for (LaneRun& lane : lanes[(first + i) % lanes.size()]) {
          // Some ranks sleep through some passes.
          if (!lane.done() && random_.below(4) != 0) {
            const bool last = random_.below(8) == 0;
            moved |= lane.progress(last ? LaneRun::Landing::kSlotNow : LaneRun::Landing::kWait);
          }
          done &= lane.done();
        }
      }
      if (done) return "";
      network_.advance();
      idle = moved ? 0 : idle + 1;
    }
    return "hung";
  }

  static std::string same_bits(const CollectiveCase& what, const std::vector<CollectiveRank>& ranks) {
    if (what.collective != Collective::kAllReduce) return "";
    for (const CollectiveRank& rank : ranks) {
      if (rank.output() != ranks[0].output()) return what.describe() + ": the ranks' bits differ";
    }
    return "";
  }

  Shape shape_;
  Random random_;
  SimNetwork network_;
  std::vector<std::unique_ptr<Link>> links_;
  int made_ = 0;
};

Shape random_shape(Random& random) {
  Shape shape;
  shape.world = static_cast<int>(1 + random.below(7));
  shape.lanes = static_cast<uint32_t>(1 + random.below(3));
  shape.connections = random.below(2) == 0 ? 1 : 3;
  shape.config.lanes = shape.lanes;
  shape.config.slice_bytes = 4096;
  shape.config.slices_per_chunk = static_cast<uint32_t>(1 + random.below(4));
  return shape;
}

CollectiveCase random_case(Random& random, int world) {
  CollectiveCase what;
  what.collective = static_cast<Collective>(random.below(kCollectives));
  what.world = world;
  what.root = static_cast<int>(random.below(static_cast<uint64_t>(world)));
  what.dtype = static_cast<DType>(random.below(kDTypes));
  do {
    what.op = static_cast<Op>(random.below(kOps));
  } while (!op_supports(what.op, what.dtype));
  const uint64_t counts[] = {0,
                             1,
                             static_cast<uint64_t>(world - 1),
                             static_cast<uint64_t>(world),
                             static_cast<uint64_t>(world + 1),
                             37,
                             500 + random.below(1500)};
  what.count = counts[random.below(7)];
  what.in_place = random.below(2) == 0;
  what.misalign = random.below(16);
  what.seed = random.below(1000);
  const bool has_uneven = what.collective == Collective::kAllGather || what.collective == Collective::kReduceScatter ||
                          what.collective == Collective::kGather || what.collective == Collective::kScatter ||
                          what.collective == Collective::kAllToAll;
  if (has_uneven && random.below(2) == 0) {
    for (int r = 0; r < world; ++r) what.counts.push_back(random.below(3) == 0 ? 0 : random.below(900));
  }
  return what;
}

Algorithm random_algorithm(Random& random, const CollectiveCase& what) {
  Topology topology;
  for (int r = 0; r < what.world; ++r) topology.host.push_back(r * 2 / what.world);
  while (true) {
    const auto algorithm = static_cast<Algorithm>(1 + random.below(kAlgorithms - 1));
    if (plan_available(what.collective, algorithm, topology)) return algorithm;
  }
}

}  // namespace

TEST_CASE("every collective ends with the reference result under random delays, crumbs and orders") {
  // Proves: executor, links and plans together neither hang, nor mix slices up, nor write beside the output.
  const auto [first, seeds] = seed_range(300);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Random random(seed);
    const Shape shape = random_shape(random);
    Cluster cluster(shape, seed);
    for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
      const CollectiveCase what = random_case(random, shape.world);
      const Algorithm algorithm = random_algorithm(random, what);
      const std::string trouble = cluster.run(what, algorithm, sequence);
      REQUIRE_MESSAGE(trouble.empty(),
                      fmt::format("seed {} operation {}: {} by {} (lanes {}, connections {}): {}", seed, sequence,
                                  what.describe(), algorithm_name(algorithm), shape.lanes, shape.connections, trouble));
    }
  }
}

TEST_CASE("a cut connection ends in an error of its link, never in a wrong result") {
  // Proves: after a cut at any byte, an operation either completes with the right result or a link says why it cannot.
  const auto [first, seeds] = seed_range(300);
  int failed = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Random random(seed + 1'000'000);
    Shape shape = random_shape(random);
    if (shape.world == 1) continue;
    Cluster cluster(shape, seed);
    CollectiveCase what = random_case(random, shape.world);
    what.collective = Collective::kAllReduce;
    what.counts.clear();
    what.count = 100 + random.below(2000);
    const int victim = static_cast<int>(random.below(static_cast<uint64_t>(cluster.connections())));
    cluster.network().cut_after(victim, random.below(3000), random.below(2) == 0 ? SimCut::kClose : SimCut::kReset);
    const std::string trouble = cluster.run(what, random_algorithm(random, what), 1);
    if (trouble.empty()) continue;
    REQUIRE_MESSAGE(trouble == "hung", fmt::format("seed {}: {}", seed, trouble));
    REQUIRE_MESSAGE(cluster.any_link_failed(), fmt::format("seed {}: hung without an error", seed));
    ++failed;
  }
  CHECK(failed > 0);
}

}  // namespace rondo::testing
