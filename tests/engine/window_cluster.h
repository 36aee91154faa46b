#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ring/engine/island/island_channel.h"
#include "ring/plan/layout.h"
#include "ring/plan/plan.h"
#include "tests/support/collective_check.h"
#include "tests/support/random.h"

namespace rondo::testing {

// Real executors of plans over windows and of one-shot plans, on boards and staging memory of one process, in one
// thread: the seed says in which order ranks move. All buffers are mapped.
class WindowCluster {
 public:
  WindowCluster(int world, uint64_t seed);

  // How run() cuts a case.
  static Slicing slicing_of(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence);
  // Runs one operation on all ranks. "", or what went wrong.
  std::string run(const CollectiveCase& what, const std::vector<Plan>& plans, uint64_t sequence);
  // Barriers that a rank has passed.
  uint64_t barriers(int rank) const;

 private:
  class Call;
  std::string run_plans(Call& call);
  std::string run_one_shot(Call& call);

  Random random_;
  std::vector<std::byte> memory_;  // of all boards
  std::vector<IslandChannel> noticeboards_;
};

}  // namespace rondo::testing
