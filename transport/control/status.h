#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/fabric.h"

namespace rondo {

// What a rank is doing, for those who watch.
struct RankStatus {
  std::string job;
  uint32_t session = 0;  // of this start, the same on all ranks
  int rank = 0;
  int world = 1;
  std::string host;
  LinkRate slowest;
  std::vector<std::string> communicators;  // CommunicatorEvents::status_json() of each
};

// One line of JSON. docs/traces.md has the fields. Those that mean what NCCL's RAS subsystem says in its JSON (NCCL
// 2.28, ncclras -f json) have its names.
std::string status_json(const RankStatus& status);

}  // namespace rondo
