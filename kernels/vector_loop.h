#pragma once

// RONDO_VECTOR_LOOP before a loop: no iteration reads what another one writes, so it may be vectorised though its
// pointers may be equal (an exact alias of a target and a source stays inside one iteration).
// Clang unrolls short loops before it vectorises, and then finds nothing to vectorise: unroll(disable).
#if defined(__clang__)
#define RONDO_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety) unroll(disable)")
#else
#define RONDO_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

#define RONDO_INLINE inline __attribute__((always_inline))
