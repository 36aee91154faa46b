#pragma once

#include <mpi.h>

#include <iterator>

#include "mpi/core/errors.h"
#include "mpi/core/objects.h"

namespace rondo_mpi {

// Attributes of communicators and types: the functions of their keyvals have one form but for the handle.
template <typename Handle>
using CopyFunction = int(Handle, int, void*, void*, void*, int*);
template <typename Handle>
using DeleteFunction = int(Handle, int, void*, void*);

// Copies the attributes of `from` into `to`, as their copy functions say.
template <typename Handle>
void copy_attributes(Handle handle, const Attributes& from, Attributes& to) {
  for (const auto& [id, keyval, value] : from) {
    if (keyval->copy == nullptr) continue;
    void* copied = value;
    int flag = 1;
    if (keyval->copy != reinterpret_cast<void*>(MPI_COMM_DUP_FN)) {  // or a function of the face's, as the program's
      const auto copy = reinterpret_cast<CopyFunction<Handle>*>(keyval->copy);
      const int error = copy(handle, id, keyval->state, value, &copied, &flag);
      if (error != MPI_SUCCESS) fail(error, "the copy function of an attribute failed");
    }
    if (flag) to.push_back({id, keyval, copied});
  }
}

template <typename Handle>
void delete_attribute(Handle handle, Attributes& attributes, Attributes::iterator which) {
  const Attribute over = *which;
  if (over.keyval->remove != nullptr) {
    const auto remove = reinterpret_cast<DeleteFunction<Handle>*>(over.keyval->remove);
    const int error = remove(handle, over.id, over.value, over.keyval->state);
    if (error != MPI_SUCCESS) fail(error, "the delete function of an attribute failed");
  }
  std::erase_if(attributes, [&](const Attribute& attribute) { return attribute.id == over.id; });
}

// All of them, the one that was set last first.
template <typename Handle>
void delete_attributes(Handle handle, Attributes& attributes) {
  while (!attributes.empty()) delete_attribute(handle, attributes, std::prev(attributes.end()));
}

// Hints of `from` over those of `into`.
void take_hints(Info& into, MPI_Info from);

}  // namespace rondo_mpi
