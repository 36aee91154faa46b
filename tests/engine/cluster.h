#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ring/engine/run/plan_run.h"
#include "ring/plan/plan.h"
#include "rondo/config.h"
#include "tests/support/collective_check.h"
#include "tests/support/random.h"
#include "tests/support/sim_stream.h"
#include "transport/link.h"

namespace rondo::testing {

struct ClusterShape {
  int world = 2;
  int connections = 1;
  Config config;
  // Optional: what stands between an executor and its link.
  std::function<std::unique_ptr<Link>(int from, int to, std::unique_ptr<Link> link)> wrap;
};

// Real executors on real stream links over a simulated network, in one thread: every delay, partial transfer and order
// of ranks comes from the seed.
class Cluster {
 public:
  Cluster(const ClusterShape& shape, uint64_t seed);

  // The plans of a case, as the communicator builds them; half of the ranks are on another host.
  std::vector<Plan> plans_of(const CollectiveCase& what, Algorithm algorithm) const;
  // How run() cuts a case.
  Slicing slicing_of(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence) const;

  // Runs one operation on all ranks. "", or what went wrong: a wrong result, or "hung".
  std::string run(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence);

  SimNetwork& network() { return network_; }
  int connections() const { return made_; }
  bool any_link_failed() const;

 private:
  std::unique_ptr<Link>& link(int from, int to);
  void connect(int a, int b, const SimShape& wire);

  ClusterShape shape_;
  Random random_;
  SimNetwork network_;
  std::vector<std::unique_ptr<Link>> links_;
  int made_ = 0;
};

// The first half of the ranks on one host, the others on another.
Topology two_hosts(int world);
// Any collective, even or uneven, type and operation.
CollectiveCase random_case(Random& random, int world);

// All executors in turn, in an order of `random`'s, until all are done. advance(): between passes. "" or "hung".
std::string drive(std::vector<PlanRun>& runs, Random& random, const std::function<void()>& advance);

// "" if all ranks' outputs are right, and of all_reduce the same bit for bit.
std::string check_outputs(const CollectiveCase& what, const std::vector<CollectiveRank>& ranks);

}  // namespace rondo::testing
