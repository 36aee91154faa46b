#pragma once

#include <doctest/doctest.h>

#include <cstdio>

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

}  // namespace rondo::testing
