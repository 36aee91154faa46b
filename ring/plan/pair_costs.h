#pragma once

#include <vector>

#include "ring/base/types.h"
#include "ring/plan/cost_model.h"
#include "ring/plan/members.h"

namespace rondo {

// What the pairs of ranks that the algorithms use cost in one topology: of each set of pairs the dearest, since all
// wait for it. Worked out once for a group.
struct PairCosts {
  PairCosts(const Topology& topology, const CostModel& model);

  int world = 1;
  int levels = 0;                   // log2(world), rounded up
  PairCost ring;                    // r and r + 1
  PairCost any;                     // all pairs
  double all_beta_us_per_byte = 0;  // a byte to each of the others, through the dearest rank's port
  std::vector<PairCost> shift;      // r and r + 2^k, k below levels

  Members members;                 // of exchanges in pairs
  std::vector<PairCost> exchange;  // members that differ in bit k
  PairCost companion;              // a pair that takes part as one

  int hosts = 1, largest_host = 1;
  bool over_loopback = true;  // Topology::loopback()
  int crowded_cores = 0;      // over_loopback, and more ranks than these; 0: every rank can have one
  bool equal_hosts = true;
  PairCost inside, between;  // hosts
};

}  // namespace rondo
