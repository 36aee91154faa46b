#pragma once

namespace rondo::bench {

// Nanoseconds until a cache line that one core has written is seen by another: half a round trip between two threads on
// the first two cores that this process may use; the least of some tries. 0: it may use one core only.
double line_transfer_ns();

}  // namespace rondo::bench
