#pragma once

#include <cstdio>
#include <cstdlib>

// RONDO_CHECK(condition, "what it means"): our own bug, always on; prints and aborts the process, since going on would
// touch memory that may not be ours. Never for the caller's mistakes or the world's failures (error.h).
#define RONDO_CHECK(condition, meaning)                                                                           \
  do {                                                                                                            \
    if (!(condition)) [[unlikely]] {                                                                              \
      std::fprintf(stderr, "rondo: internal error at %s:%d: %s (%s)\n", __FILE__, __LINE__, meaning, #condition); \
      std::abort();                                                                                               \
    }                                                                                                             \
  } while (false)
