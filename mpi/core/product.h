#pragma once

#include <mpi.h>

namespace rondo_mpi {

[[noreturn, gnu::cold]] void refuse_result(int code);  // errors.cc

// The product of counts, bytes and displacements that a program gives: throws `code` where 64 bits do not hold it.
inline MPI_Count product(MPI_Count a, MPI_Count b, int code = MPI_ERR_COUNT) {
  MPI_Count made;
  if (__builtin_mul_overflow(a, b, &made)) [[unlikely]]
    refuse_result(code);
  return made;
}
inline MPI_Count sum(MPI_Count a, MPI_Count b, int code = MPI_ERR_COUNT) {
  MPI_Count made;
  if (__builtin_add_overflow(a, b, &made)) [[unlikely]]
    refuse_result(code);
  return made;
}

}  // namespace rondo_mpi
