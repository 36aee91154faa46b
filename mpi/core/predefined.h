#pragma once

#include <memory>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// In the order of their `place`: what ranks may call them to each other, since their handles may be addresses.
using NamedTypes = std::vector<std::shared_ptr<const Type>>;
using NamedOps = std::vector<std::shared_ptr<const Op>>;

// The element types and operations that MPI names, under the handles of the face. Called once, by the constructor of
// World.
NamedTypes name_types(Table<Type>& table);
NamedOps name_ops(Table<Op>& table);

}  // namespace rondo_mpi
