#pragma once

#include <map>
#include <utility>

#include "ring/engine/device/passes.h"
#include "ring/plan/lower.h"

namespace rondo {

// The programs for streams of one communicator, made at first use. One thread at a time.
class StreamPlans {
 public:
  struct Entry {
    Plan plan;
    StreamProgram program;
    Touched touched;  // of this rank's buffers
  };

  // topology: one island.
  StreamPlans(int rank, Topology topology) : rank_(rank), topology_(std::move(topology)) {}

  bool has(Collective collective) const;
  const Entry& get(Collective collective, int root);

 private:
  int rank_;
  Topology topology_;
  std::map<std::pair<Collective, int>, Entry> entries_;
};

}  // namespace rondo
