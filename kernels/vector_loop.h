#pragma once

// RONDO_VECTOR_LOOP before a loop: no iteration reads what another one writes, so it may be vectorised though its
// pointers may be equal (an exact alias of a target and a source stays inside one iteration).
// Clang unrolls short loops before it vectorises, and then finds nothing to vectorise: unroll(disable).
#if defined(__clang__)
#define RONDO_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety) unroll(disable)")
#else
#define RONDO_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

// Under nvcc for both sides.
#ifdef __CUDACC__
#define RONDO_INLINE __host__ __device__ inline __attribute__((always_inline))
#else
#define RONDO_INLINE inline __attribute__((always_inline))
#endif

// RONDO_UNROLL before a loop of a GPU: its arrays are registers only if it is unrolled whole. RONDO_ROLLED: it is not
// unrolled, since its speed does not matter.
#ifdef __CUDA_ARCH__
#define RONDO_UNROLL _Pragma("unroll")
#define RONDO_ROLLED _Pragma("unroll 1")
#else
#define RONDO_UNROLL
#define RONDO_ROLLED
#endif
