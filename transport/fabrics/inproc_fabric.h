#pragma once

#include <memory>
#include <vector>

#include "rondo/config.h"
#include "transport/fabric.h"

namespace rondo {

// A fabric for each of `world` ranks that are threads of this process: links and streams through memory, and the same
// control plane as between processes, its messages delivered by one thread.
std::vector<std::shared_ptr<Fabric>> make_inproc_fabrics(int world, const Config& config);

}  // namespace rondo
