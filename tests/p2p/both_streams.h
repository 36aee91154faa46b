#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/p2p/world.h"

namespace rondo::testing {

// Every test over streams that copy, as sockets do, and over streams that lend, as those over shared memory do.
inline int run_over_both_streams(int argc, char** argv) {
  for (const bool lend : {false, true}) {
    streams_lend = lend;
    std::printf("streams that %s\n", lend ? "lend" : "copy");
    if (const int code = doctest::Context(argc, argv).run(); code != 0) return code;
  }
  return 0;
}

// What a test that is played by seeds plays: 300 of them, or those that `NAME FIRST COUNT` says.
inline uint64_t first_seed = 1, seeds = 300;

inline int run_seeds_over_both_streams(int argc, char** argv) {
  if (argc > 1) first_seed = std::strtoull(argv[1], nullptr, 10);
  if (argc > 2) seeds = std::strtoull(argv[2], nullptr, 10);
  std::printf("seeds %llu .. %llu\n", static_cast<unsigned long long>(first_seed),
              static_cast<unsigned long long>(first_seed + seeds - 1));
  return run_over_both_streams(1, argv);
}

}  // namespace rondo::testing
