#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ring/base/types.h"
#include "rondo/store.h"

namespace rondo {

// What one rank found out about another of its host.
enum class Reach : char {
  kNone = '.',
  kShares = 's',
  kPulls = 'p'
};  // kPulls: shares memory, and pull works both ways

// One rank's report: a Reach for every rank of the world, '.' for other hosts.
using Report = std::string;

struct Islands {
  std::vector<int> island;  // Topology::island; empty if no ranks share memory
  std::vector<bool> pulls;  // by rank: pull works between all ranks of its island
  bool operator==(const Islands&) const = default;
};
// Greedy by rank: a rank joins the first island all of whose members reached it and were reached by it.
Islands find_islands(const std::vector<Report>& reports);

// The islands of all ranks, found by rank 0 from their reports. `gone`: that rank has died; it is not waited for.
// Throws Exception: kPeerLost, kTimeout, kBootstrap.
Islands agree_islands(Store& store, int rank, const Report& own, Store::Deadline deadline,
                      const std::function<bool(int rank)>& gone);

}  // namespace rondo
