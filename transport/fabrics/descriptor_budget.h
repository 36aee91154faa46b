#pragma once

#include <cstddef>

#include "ring/base/types.h"
#include "rondo/config.h"

namespace rondo {

// File descriptors that one rank of a fabric opens.
struct DescriptorNeed {
  size_t least = 0;  // control plane and ring
  size_t most = 0;   // with links to every rank, and point to point both ways
};
DescriptorNeed descriptors_needed(int world, size_t connections);
// The need of a rank that may share memory with place.local_world - 1 others.
DescriptorNeed descriptors_of_rank(const Place& place, const Config& config);

// Connections that a rank holds which are in no use yet, of a rank with so many descriptors left. Those of this job
// never meet a bound: the peers' come all at once, and before their hellos.
struct DoorBounds {
  size_t pending = 0;  // have not said who they are
  size_t known = 0;    // have, and are not through yet
  size_t early = 0;    // of communicators that are not open here yet
};
DoorBounds door_bounds(int world, const Config& config, size_t descriptors);

// Raises the soft limit towards the hard one if it is too low for `most`. Throws Exception(kSystem) saying how many are
// needed if even `least` cannot be had besides those already open: a start that fails here names the limit, and a call
// that fails later could only say EMFILE. Returns how many may be opened.
size_t ensure_descriptors(const DescriptorNeed& need);

}  // namespace rondo
