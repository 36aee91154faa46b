#include "ring/plan/simulate.h"

#include <algorithm>

#include "ring/plan/layout.h"
#include "ring/plan/machine.h"
#include "ring/plan/structure.h"

namespace rondo {
namespace {

// The bytes of every length: each rank's buffer is cut into blocks that differ by at most a byte.
std::vector<uint64_t> block_bytes(const Plan& plan, uint64_t bytes) {
  const std::vector<Extent> blocks = even_blocks(bytes, plan.chunks, 1);
  std::vector<uint64_t> lengths(lengths_of(plan));
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = blocks[i % plan.chunks].count;
  return lengths;
}

}  // namespace

Simulation simulate(std::span<const Plan> plans, const SimulationRequest& request) {
  const uint32_t lanes = static_cast<uint32_t>(plans[0].lanes.size());
  Load load;
  load.slicing = {lanes, 1, request.slice_bytes, request.slices_per_chunk};
  load.block_bytes = block_bytes(plans[0], request.bytes);
  CostModel cost = request.cost;
  for (PairCost* pair : {&cost.memory, &cost.loopback, &cost.network}) pair->beta_us_per_byte *= lanes;
  load.topology = request.topology;
  const uint32_t depth = request.depth == 0 ? request.slices_per_chunk * plans[0].chunks_in_flight + 1 : request.depth;
  Simulation result;
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    load.lane = load.share = lane;
    Machine machine(plans, load, depth, cost);
    result.finished &= machine.run();
    result.time_us = std::max(result.time_us, machine.finish_us());
    result.slices += machine.slices();
  }
  return result;
}

}  // namespace rondo
