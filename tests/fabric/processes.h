#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/fabric/cluster.h"
#include "tests/support/child.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {

// A rank in a process of its own: joins through a shared file, opens one communicator over all ranks and runs a body.
class FabricProcess : public Child {
 public:
  using Say = std::function<void(const std::string& line)>;
  using Body = std::function<void(Member& member, const Say& say)>;

  FabricProcess(int rank, int world, const std::string& store_path, uint64_t id, const Config& config,
                const Body& body);
};

std::vector<FabricProcess> start_ranks(int world, const TempFolder& folder, uint64_t id,
                                       const FabricProcess::Body& body, const Config& config = test_config());

}  // namespace rondo::testing
