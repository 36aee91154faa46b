#include "ring/plan/simulate.h"

#include "ring/plan/layout.h"
#include "ring/plan/structure.h"

namespace rondo {
namespace {

// The bytes of every length: each rank's buffer is cut into blocks that differ by at most a byte.
std::vector<uint64_t> block_bytes(const Plan& plan, uint64_t bytes) {
  const std::vector<Extent> blocks = even_blocks(bytes, plan.blocks, 1);
  std::vector<uint64_t> lengths(lengths_of(plan));
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = blocks[i % plan.blocks].count;
  return lengths;
}

Machine machine_of(std::span<const Plan> plans, const SimulationRequest& request) {
  Load load;
  load.slicing = {1, request.slice_bytes, request.slices_per_chunk};
  load.block_bytes = block_bytes(plans[0], request.bytes);
  load.topology = request.topology;
  const uint32_t depth = request.depth == 0 ? request.slices_per_chunk * plans[0].chunks_in_flight + 1 : request.depth;
  return Machine(plans, load, depth, request.cost);
}

}  // namespace

Simulation simulate(std::span<const Plan> plans, const SimulationRequest& request) {
  Machine machine = machine_of(plans, request);
  Simulation result;
  result.finished = machine.run();
  result.time_us = machine.finish_us();
  result.slices = machine.slices();
  return result;
}

RecordedSimulation simulate_recorded(std::span<const Plan> plans, const SimulationRequest& request) {
  RecordedSimulation result;
  result.block_bytes = block_bytes(plans[0], request.bytes);
  Machine machine = machine_of(plans, request);
  machine.record(&result.moves);
  machine.record(&result.transfers);
  result.finished = machine.run();
  result.time_us = machine.finish_us();
  result.slices = machine.slices();
  return result;
}

}  // namespace rondo
