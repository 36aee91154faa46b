#pragma once

#include <malloc.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "rondo/error.h"
#include "tests/lab/peers/peer.h"

namespace rondo::bench {

inline void check(int code) {
  if (code != MPI_SUCCESS) throw Exception(ErrorCode::kSystem, "MPI error " + std::to_string(code));
}

// main() of a driver that an MPI starts; what fails on one rank ends all of them.
inline int mpi_main(int argc, char** argv, const char* name, int (*run)(const std::vector<std::string>& args)) {
  if (std::getenv("MPI_BENCH_KEEP_HEAP") != nullptr) {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
  }
  MPI_Init(&argc, &argv);
  int code = 1;
  try {
    code = run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
  }
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}

}  // namespace rondo::bench
