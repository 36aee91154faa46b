#pragma once

#include "mpi/core/objects.h"

namespace rondo_mpi {

// The element types and operations that MPI names, under the handles of the face.
void name_types(Table<Type>& table);
void name_ops(Table<Op>& table);

}  // namespace rondo_mpi
