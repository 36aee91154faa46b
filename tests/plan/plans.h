#pragma once

#include <string>
#include <vector>

#include "ring/plan/build.h"
#include "ring/plan/plan.h"
#include "ring/plan/simulate.h"

namespace rondo {

inline Topology one_host(int world) { return {std::vector<int>(static_cast<size_t>(world), 0), {}}; }

inline Topology one_island_of(int world) {
  Topology topology = one_host(world);
  topology.island.assign(static_cast<size_t>(world), 0);
  return topology;
}

// Ranks dealt to hosts in runs of the given sizes.
inline Topology hosts_of(const std::vector<int>& sizes) {
  Topology topology;
  for (size_t h = 0; h < sizes.size(); ++h) {
    topology.host.insert(topology.host.end(), static_cast<size_t>(sizes[h]), static_cast<int>(h));
  }
  return topology;
}

inline std::vector<Plan> plans_of_all_ranks(PlanRequest request) {
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < request.topology.world(); ++request.rank) {
    plans.push_back(build_plan(request));
  }
  return plans;
}

inline PlanRequest request_of(Collective collective, Algorithm algorithm, const Topology& topology, int root = 0) {
  PlanRequest request;
  request.collective = collective;
  request.algorithm = algorithm;
  request.topology = topology;
  request.root = collective_has_root(collective) ? root : -1;
  return request;
}

// Every block in one slice.
inline SimulationRequest one_slice(uint64_t bytes) {
  SimulationRequest request;
  request.bytes = bytes;
  request.slice_bytes = bytes;
  request.slices_per_chunk = 1;
  return request;
}

inline std::string name_of(const PlanRequest& request) {
  return std::string(collective_name(request.collective)) + " by " + algorithm_name(request.algorithm) + ", world " +
         std::to_string(request.topology.world()) + ", root " + std::to_string(request.root) +
         (request.chunks_in_flight > 1 ? ", chunks in flight " + std::to_string(request.chunks_in_flight) : "") +
         (request.scale_at_source ? ", scaled at the source" : "");
}

}  // namespace rondo
