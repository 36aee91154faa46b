#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/faults/ranks.h"

namespace rondo::testing {

// Two network namespaces, joined by a pair of virtual interfaces, stand for two hosts. They end with the processes that
// hold them. Needs root (or CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2: fails the test, and says so, without.
class Hosts {
 public:
  Hosts();
  // Starts the ranks of the job, rank r on host host_of[r] (0 or 1); rank 0's host serves the rendezvous.
  void start(Job& job, const std::vector<int>& host_of, const RankProcess::Body& body,
             const Config& config = fault_config()) const;

 private:
  pid_t pid(int host) const { return holders_[static_cast<size_t>(host)].pid(); }
  void run(int host, const std::string& commands);
  void require_ready(int host);

  std::vector<RankProcess> holders_;
};

}  // namespace rondo::testing
