#pragma once

#include <mpi.h>

#include <cstddef>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// external32, the data representation that is the same on all machines. `packed`: elements one after the other, as
// pack() leaves them.

// Bytes of `count` elements in it.
MPI_Count external_size(const Type& type, MPI_Count count);
void to_external(const Type& type, const std::byte* packed, MPI_Count count, std::byte* out);
void from_external(const Type& type, const std::byte* in, MPI_Count count, std::byte* packed);

}  // namespace rondo_mpi
