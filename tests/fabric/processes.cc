#include "tests/fabric/processes.h"

#include <unistd.h>

#include "rondo/error.h"
#include "transport/fabrics/process_fabric.h"
#include "transport/rendezvous/launch.h"

namespace rondo::testing {
namespace {

int run_rank(const Parent& test, Launch launch, const std::string& store_path, uint64_t id, const Config& config,
             const FabricProcess::Body& body) {
  launch.rendezvous = "file://" + store_path;
  try {
    const auto deadline = in(static_cast<int>(config.start_timeout_ms));
    Member member = open_all(join_processes(launch, open_store(launch, config, deadline), config, deadline), id);
    body(member, [&](const std::string& line) { test.say(line); });
    ::_exit(0);  // without destructors, the member's among them
  } catch (const Exception& failure) {
    test.say(std::string("exception: ") + failure.what());
    return 2;
  }
}

}  // namespace

FabricProcess::FabricProcess(int rank, int world, const std::string& store_path, uint64_t id, const Config& config,
                             const Body& body)
    : Child([&](Parent& test) { return run_rank(test, launch_of(rank, world), store_path, id, config, body); }) {}

std::vector<FabricProcess> start_ranks(int world, const TempFolder& folder, uint64_t id,
                                       const FabricProcess::Body& body, const Config& config) {
  std::vector<FabricProcess> ranks;
  ranks.reserve(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(rank, world, folder.path("store"), id, config, body);
  return ranks;
}

}  // namespace rondo::testing
