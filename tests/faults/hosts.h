#pragma once

#include <cstdint>
#include <vector>

#include "tests/faults/ranks.h"
#include "tests/support/namespaces.h"

namespace rondo::testing {

// A network on whose hosts the ranks of a job run.
class Hosts : public Namespaces {
 public:
  using Namespaces::Namespaces;
  static constexpr uint16_t kRendezvousPort = 5577;
  // Starts the ranks of the job, rank r on host host_of[r]; rank 0's host serves the rendezvous. Without authentication
  // unless the config has a secret.
  void start(Job& job, const std::vector<int>& host_of, const RankProcess::Body& body,
             const Config& config = fault_config()) const;
};

}  // namespace rondo::testing
