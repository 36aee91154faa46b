#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ring/plan/cost_model.h"
#include "ring/plan/machine.h"
#include "ring/plan/plan.h"

namespace rondo {

// How a collective is cut up and what it costs.
struct SimulationRequest {
  uint64_t bytes = 0;  // of the whole buffer: what the bench calls the size; all_to_all: of each rank's
  uint64_t slice_bytes = 256 * 1024;
  uint32_t slices_per_chunk = 4;
  uint32_t depth = 0;  // slices that a link holds; 0: Plan::chunks_in_flight * slices_per_chunk + 1
  CostModel cost;
  Topology topology;  // what kind each pair of ranks is; empty: all on one host, without shared memory
};

struct Simulation {
  bool finished = true;  // false: the plans deadlock at this depth
  double time_us = 0;    // until the last rank is done
  uint64_t slices = 0;   // combined by all ranks
};

// What the plans of all ranks take, by the machine that the verifier proves progress with (machine.h).
Simulation simulate(std::span<const Plan> plans, const SimulationRequest& request);

// A simulation with all that the machine recorded.
struct RecordedSimulation : Simulation {
  std::vector<Machine::Move> moves;
  std::vector<Machine::Transfer> transfers;
  std::vector<uint64_t> block_bytes;  // by length_of()
};
RecordedSimulation simulate_recorded(std::span<const Plan> plans, const SimulationRequest& request);

}  // namespace rondo
