#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// The shape of a type that is made of `pieces`: sizes, bounds, density. Does not commit it. Throws MPI_ERR_COUNT where
// 64 bits do not hold a size or a bound.
std::shared_ptr<Type> type_of_pieces(int combiner, std::vector<Piece> pieces);

std::shared_ptr<Type> contiguous(MPI_Count count, const std::shared_ptr<const Type>& type);
std::shared_ptr<Type> resized(const std::shared_ptr<const Type>& type, MPI_Aint lb, MPI_Aint extent);

// The same without attributes, whose functions are called for the original alone.
std::shared_ptr<Type> copy_of(const Type& type);
// A new handle of the type, which the program frees: the handle that it passed may be freed by now. A predefined type
// gives its own handle.
MPI_Datatype reveal(const Type& type);

// A share that keeps the handle, too, if the program can free it: for reductions, whose functions of the program get
// it.
std::shared_ptr<const Type> with_handle(const std::shared_ptr<const Type>& type);
// The end of the program's use of the handle. It goes, or stays until no with_handle() needs it. MPI_ERR_TYPE where the
// program has freed it before.
void free_handle(const Type& type);

// MPI_BYTE. It is the type of data that has been packed.
const std::shared_ptr<const Type>& byte_type();

// Calls function(byte*, bytes) for each run of memory of `count` elements at `at`, in the order of the type map, until
// it returns false. It costs a call for each dense run, so the runs of a large vector of short elements are what a
// transfer costs.
template <typename Function>
bool for_runs(const Type& type, std::byte* at, MPI_Count count, Function& function) {
  if (type.dense) return count == 0 || type.size == 0 || function(at, count * type.size);
  if (type.pieces.empty()) return true;
  for (MPI_Count i = 0; i < count; ++i, at += type.extent()) {
    for (const Piece& piece : type.pieces) {
      std::byte* from = at + piece.offset;
      if (piece.stride == piece.type->extent() || piece.count == 1) {
        if (!for_runs(*piece.type, from, piece.count, function)) return false;
        continue;
      }
      for (MPI_Count k = 0; k < piece.count; ++k, from += piece.stride) {
        if (!for_runs(*piece.type, from, 1, function)) return false;
      }
    }
  }
  return true;
}

// Calls function(type, count) for the named element types of one `type`, in order, until it returns false. A type
// without pieces is one element: a named type, or MPI_LB and MPI_UB, which have none.
template <typename Function>
bool for_elements(const Type& type, Function& function) {
  if (type.pieces.empty()) return type.elements == 0 || function(type, MPI_Count{1});
  for (const Piece& piece : type.pieces) {
    if (piece.type->pieces.empty()) {
      if (piece.type->elements != 0 && !function(*piece.type, piece.count)) return false;
      continue;
    }
    for (MPI_Count k = 0; k < piece.count; ++k) {
      if (!for_elements(*piece.type, function)) return false;
    }
  }
  return true;
}

// Copies `count` elements at `data` one after the other to `out`: count * type.size bytes.
void pack(const Type& type, const void* data, MPI_Count count, std::byte* out);
// The other way; of the `bytes` at `in` as many as fit. Returns how many it took. Where the bytes end inside of an
// element, its beginning is stored.
MPI_Count unpack(const Type& type, void* data, MPI_Count count, const std::byte* in, MPI_Count bytes);

// Named elements in `bytes` bytes of the type, for MPI_Get_elements; MPI_UNDEFINED if an element is cut.
MPI_Count elements_in(const Type& type, MPI_Count bytes);
// The other way: bytes of the first `elements` named elements of as many of the type as they take.
MPI_Count bytes_of_elements(const Type& type, MPI_Count elements);

}  // namespace rondo_mpi
