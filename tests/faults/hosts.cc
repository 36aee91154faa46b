#include "tests/faults/hosts.h"

#include <fmt/format.h>

namespace rondo::testing {

void Hosts::start(Job& job, const std::vector<int>& host_of, const RankProcess::Body& body,
                  const Config& config) const {
  const int world = static_cast<int>(host_of.size());
  for (int rank = 0; rank < world; ++rank) {
    JoinOptions options = job.options(rank, world, config);
    options.rendezvous = fmt::format("tcp://{}:{}", address(host_of[0]), kRendezvousPort);
    options.config.socket_interface = "";
    options.config.insecure = config.secret_file.empty();
    job.ranks.emplace_back(options, [this, host = host_of[static_cast<size_t>(rank)], body](Here& here) {
      enter(host);
      body(here);
    });
  }
}

}  // namespace rondo::testing
