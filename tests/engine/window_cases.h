#pragma once

#include <cstdint>
#include <vector>

#include "rondo/communicator.h"

namespace rondo::testing {

// What is to hold over windows, whatever the transport; each is called by all ranks of an island and throws what is
// wrong.

// Every collective by each algorithm over windows, with these counts, the first and the last root, in place or not,
// aligned or not; and every reduction.
void run_over_windows(Communicator& group, const std::vector<uint64_t>& counts);
// Every subset of ranks with registered buffers (of the first four ranks).
void run_mixed_registration(Communicator& group);
// Every collective, large enough that calls over links ask first whether all buffers are registered: registered by all
// ranks, by none and by some, in turns.
void run_large_in_turns(Communicator& group);
// Algorithms that the buffers do not allow.
void run_refusals(Communicator& group);

}  // namespace rondo::testing
