#pragma once

#include <mpi.h>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// Throws MPI_ERR_OP where the operation is not defined for the type. One of the program's is defined for every type.
void check_fold(const Op& op, const Type& type);

// Whether the engine reduces elements of this type by this operation.
inline bool engine_folds(const Op& op, const Type& type) { return op.engine.has_value() && type.dtype.has_value(); }

// inout[i] = in[i] op inout[i], i < count. It may call a function of the program: with no lock held, on the thread that
// waits, or on one of the engine for what no thread waits for.
void fold(const Op& op, const std::shared_ptr<const Type>& type, const void* in, void* inout, MPI_Count count);

// The same of elements one after the other, as pack() leaves them.
void fold_packed(const Op& op, const std::shared_ptr<const Type>& type, const void* in, void* inout, MPI_Count count);

}  // namespace rondo_mpi
