#include "tests/engine/cluster.h"

#include <fmt/format.h>

#include "ring/engine/call/call.h"
#include "ring/engine/run/slicing.h"
#include "ring/plan/build.h"
#include "transport/tcp/stream_link.h"

namespace rondo::testing {
namespace {

// Passes of the whole cluster without any progress after which it counts as hung: far beyond the longest simulated
// delay.
constexpr int kHungTicks = 2000;

}  // namespace

Topology two_hosts(int world) {
  Topology topology;
  for (int r = 0; r < world; ++r) topology.host.push_back(r * 2 / world);
  return topology;
}

CollectiveCase random_case(Random& random, int world) {
  CollectiveCase what;
  what.collective = static_cast<Collective>(random.below(kCollectives));
  what.world = world;
  what.root = static_cast<int>(random.below(static_cast<uint64_t>(world)));
  what.dtype = static_cast<DType>(random.below(kDTypes));
  do {
    what.op = static_cast<Op>(random.below(kOps));
  } while (!op_supports(what.op, what.dtype) || (collective_scans(what.collective) && what.op == Op::kAverage));
  const auto ranks = static_cast<uint64_t>(world);
  const uint64_t counts[] = {0, 1, ranks - 1, ranks, ranks + 1, 37, 500 + random.below(1500)};
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

std::string drive(std::vector<PlanRun>& runs, Random& random, const std::function<void()>& advance) {
  int idle = 0;
  while (idle < kHungTicks) {
    bool moved = false;
    bool done = true;
    const size_t first = random.below(runs.size());
    for (size_t i = 0; i < runs.size(); ++i) {
      PlanRun& run = runs[(first + i) % runs.size()];
      // Some ranks sleep through some passes.
      if (!run.done() && random.below(4) != 0) {
        const bool last = random.below(8) == 0;
        moved |= run.progress(last ? Pass::kBeforeSleep : Pass::kPolling);
      }
      done &= run.done();
    }
    if (done) return "";
    advance();
    idle = moved ? 0 : idle + 1;
  }
  return "hung";
}

std::string check_outputs(const CollectiveCase& what, const std::vector<CollectiveRank>& ranks) {
  for (const CollectiveRank& rank : ranks) {
    if (std::string wrong = rank.check(); !wrong.empty()) return wrong;
  }
  if (what.collective != Collective::kAllReduce) return "";
  for (const CollectiveRank& rank : ranks) {
    if (rank.output() != ranks[0].output()) return what.describe() + ": the ranks' bits differ";
  }
  return "";
}

Cluster::Cluster(const ClusterShape& shape, uint64_t seed) : shape_(shape), random_(seed), network_(seed) {
  const auto world = static_cast<size_t>(shape.world);
  links_.resize(world * world);
  SimShape wire;
  wire.capacity_bytes = 64 + random_.below(4096);
  wire.delay_ticks = static_cast<uint32_t>(random_.below(20));
  for (int a = 0; a < shape.world; ++a) {
    for (int b = a + 1; b < shape.world; ++b) connect(a, b, wire);
  }
}

std::unique_ptr<Link>& Cluster::link(int from, int to) {
  const auto world = static_cast<size_t>(shape_.world);
  return links_[static_cast<size_t>(from) * world + static_cast<size_t>(to)];
}

void Cluster::connect(int a, int b, const SimShape& wire) {
  std::vector<std::unique_ptr<ByteStream>> here, there;
  for (int i = 0; i < shape_.connections; ++i) {
    auto connection = network_.connect(wire);
    here.push_back(std::move(connection.side[0]));
    there.push_back(std::move(connection.side[1]));
    ++made_;
  }
  link(a, b) = make_stream_link(std::move(here), link_shape(shape_.config), fmt::format("rank {}", b));
  link(b, a) = make_stream_link(std::move(there), link_shape(shape_.config), fmt::format("rank {}", a));
  if (!shape_.wrap) return;
  link(a, b) = shape_.wrap(a, b, std::move(link(a, b)));
  link(b, a) = shape_.wrap(b, a, std::move(link(b, a)));
}

std::vector<Plan> Cluster::plans_of(const CollectiveCase& what, Algorithm algorithm) const {
  PlanRequest request;
  request.collective = what.collective;
  request.algorithm = algorithm;
  request.root = collective_has_root(what.collective) ? what.root : -1;
  request.topology = two_hosts(what.world);
  request.scale_at_source = what.op == Op::kPremulSum;
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < what.world; ++request.rank) plans.push_back(build_plan(request));
  return plans;
}

Slicing Cluster::slicing_of(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence) const {
  const CollectiveRank rank(what, 0);
  const CheckedCall call = check_call(rank.call(), 0, what.world);
  Slicing slicing = choose_slicing(call, plans[0], shape_.config, two_hosts(what.world));
  slicing.slice = 16 * (1 + sequence % 3);  // small cases are to have several slices and rounds too
  return slicing;
}

std::string Cluster::run(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence) {
  const Slicing slicing = slicing_of(what, plans, sequence);
  std::vector<CollectiveRank> ranks;
  std::vector<Blocks> blocks(plans.size());
  std::vector<PlanRun> runs(plans.size());
  for (int r = 0; r < what.world; ++r) ranks.emplace_back(what, r);
  for (int r = 0; r < what.world; ++r) {
    const auto index = static_cast<size_t>(r);
    const CheckedCall call = check_call(ranks[index].call(), r, what.world);
    blocks[index] = lay_out_blocks(call, plans[index], slicing);
    Binding binding;
    binding.plan = &plans[index];
    binding.blocks = &blocks[index];
    binding.slicing = slicing;
    binding.combine = {call.dtype, call.op, call.scalar, static_cast<uint32_t>(what.world)};
    binding.element_bytes = dtype_bytes(call.dtype);
    binding.start.buffers = buffers_of(ranks[index].call());
    binding.start.sequence = sequence;
    binding.start.fingerprint = 42 * sequence;
    std::vector<Link*> to;
    for (const int peer : plans[index].peers) to.push_back(link(r, peer).get());
    runs[index].start(binding, to);
  }
  const std::string trouble = drive(runs, random_, [&] { network_.advance(); });
  return trouble.empty() ? check_outputs(what, ranks) : trouble;
}

bool Cluster::any_link_failed() const {
  for (const auto& link : links_) {
    if (link && link->error() != nullptr) return true;
  }
  return false;
}

}  // namespace rondo::testing
