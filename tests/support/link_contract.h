#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/fabric.h"
#include "transport/link.h"

namespace rondo::testing {

// The two ends of a new link, and what lets time pass between them where that is simulated.
struct LinkEnds {
  std::unique_ptr<Link> side[2];
  std::function<void()> advance = [] {};
};
using MakeLink = std::function<LinkEnds(const LinkShape& shape, uint64_t seed)>;

// What every implementation of Link must do (transport/link.h), by doctest's checks. Both ends are driven by the
// calling thread. Errors must name side 0 "first peer" and side 1 "second peer".
void check_link_contract(const MakeLink& make, uint64_t first_seed, uint64_t seeds);
// The traffic of it alone, each end driven by a thread of its own.
void check_link_between_threads(const MakeLink& make, uint64_t first_seed, uint64_t seeds);

}  // namespace rondo::testing
