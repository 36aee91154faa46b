#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "ring/engine/device/passes.h"
#include "ring/plan/lower.h"

namespace rondo {

// The ranks before and behind a rank in a ring; one rank where both are the same.
std::vector<int> neighbors(const std::vector<int>& order, int rank);

// The programs of one communicator for streams: plans that are lowered to steps of a kernel. Made at first use,
// and kept as long as the communicator. One thread at a time.
class StreamPlans {
 public:
  struct Entry {
    Plan plan;
    StreamProgram program;
    Touched touched;             // of this rank's buffers
    uint32_t staged_blocks = 0;  // the most, of both buffers, that others touch of a rank of the call
    uint32_t most_messages = 0;  // that a rank of the call sends or receives
  };

  // topology: one island. order: of the ranks in the ring; empty: there is none. complete: each rank reaches all
  // others; else it meets its neighbors in the ring only.
  StreamPlans(int rank, Topology topology, std::vector<int> order, bool complete = true)
      : rank_(rank), topology_(std::move(topology)), order_(std::move(order)), complete_(complete) {}

  // algorithm: kRegistered or kRing. root: -1 where there is none. The entry stays valid. Throws
  // Exception(kInternal) as lower() does, and keeps nothing then.
  const Entry& get(Collective collective, Algorithm algorithm, int root);

 private:
  using Key = std::tuple<Collective, Algorithm, int>;
  std::vector<Plan> build(Collective collective, Algorithm algorithm, int root) const;

  int rank_;
  Topology topology_;
  std::vector<int> order_;
  bool complete_;
  std::map<Key, Entry> entries_;
};

}  // namespace rondo
