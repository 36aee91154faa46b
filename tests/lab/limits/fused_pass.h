#pragma once

#include <cstdint>

namespace rondo::bench {

// What an all_reduce over memory that all ranks map cannot beat: `world` processes, each of which folds its share of
// `bytes` from all ranks' buffers (float32 sums) and writes it to all of them, in one pass of the library's own kernel;
// microseconds, from a meeting of all until the slowest one is done, the median of several passes.
// Forks: before this process has threads. Throws Exception(kSystem).
double fused_pass_us(int world, uint64_t bytes);

}  // namespace rondo::bench
