#pragma once

#include <mpi.h>

#include <span>
#include <string>
#include <string_view>

#include "mpi/core/errors.h"
#include "mpi/core/objects.h"

namespace rondo_mpi {

// Attributes of communicators and types: the functions of their keyvals have one form but for the handle.
template <typename Handle>
using CopyFunction = int(Handle, int, void*, void*, void*, int*);
template <typename Handle>
using DeleteFunction = int(Handle, int, void*, void*);

// Copies the attributes of `from` into `to`, as their copy functions say. No lock is held while they run. The first
// that fails ends the call with its code; those copied before stay in `to`, for drop_attributes().
template <typename Handle>
void copy_attributes(Handle handle, const Attributes& from, Attributes& to) {
  // A copy of the list: copy functions of the program may change it.
  for (const Attribute& one : from.get()) {
    const auto& keyval = one.keyval;
    if (keyval->copy == nullptr) continue;
    void* copied = one.value;
    int flag = 1;
    if (keyval->copy != reinterpret_cast<void*>(MPI_COMM_DUP_FN)) {  // or a function of the face's, as the program's
      const auto copy = reinterpret_cast<CopyFunction<Handle>*>(keyval->copy);
      const int error = copy(handle, one.id, keyval->state, one.value, &copied, &flag);
      if (error != MPI_SUCCESS) fail(error, "the copy function of an attribute failed");
    }
    if (flag) to.with([&](auto& all) { all.push_back({one.id, keyval, copied}); });
  }
}

// The delete function runs first and may refuse: then the attribute stays. No lock is held, since the function may set
// attributes itself.
template <typename Handle>
void delete_attribute(Handle handle, Attributes& attributes, const Attribute& over) {
  if (over.keyval->remove != nullptr) {
    const auto remove = reinterpret_cast<DeleteFunction<Handle>*>(over.keyval->remove);
    const int error = remove(handle, over.id, over.value, over.keyval->state);
    if (error != MPI_SUCCESS) fail(error, "the delete function of an attribute failed");
  }
  attributes.with([&](auto& all) { std::erase_if(all, [&](const Attribute& one) { return one.id == over.id; }); });
}

// All of them, the one that was set last first. A function that refuses ends this by its code: the attributes that are
// left stay, and the object is not freed.
template <typename Handle>
void delete_attributes(Handle handle, Attributes& attributes) {
  for (auto all = attributes.get(); !all.empty(); all = attributes.get()) {
    delete_attribute(handle, attributes, all.back());
  }
}

// Deletes the copies of an object that could not be made: it has no handle, so their functions get that of the object
// they were copied from. One that refuses is not asked again.
template <typename Handle>
void drop_attributes(Handle original, Attributes& copies) {
  auto all = copies.get();
  copies = std::vector<Attribute>();
  for (; !all.empty(); all.pop_back()) {
    const Keyval& keyval = *all.back().keyval;
    if (keyval.remove == nullptr) continue;
    reinterpret_cast<DeleteFunction<Handle>*>(keyval.remove)(original, all.back().id, all.back().value, keyval.state);
  }
}

// --- Hints: those of MPI's for a kind of object. None changes what Rondo does; others are ignored, and not told.
using Hints = std::span<const std::string_view>;
inline constexpr std::string_view kCommHints[] = {"mpi_assert_no_any_tag", "mpi_assert_no_any_source",
                                                  "mpi_assert_exact_length", "mpi_assert_allow_overtaking",
                                                  "mpi_assert_memory_alloc_kinds"};
inline constexpr std::string_view kWindowHints[] = {
    "no_locks",  "accumulate_ordering", "accumulate_ops",         "mpi_accumulate_granularity",
    "same_size", "same_disp_unit",      "alloc_shared_noncontig", "mpi_assert_memory_alloc_kinds"};
inline constexpr std::string_view kFileHints[] = {"access_style",  "collective_buffering",
                                                  "cb_block_size", "cb_buffer_size",
                                                  "cb_nodes",      "chunked",
                                                  "chunked_item",  "chunked_size",
                                                  "filename",      "file_perm",
                                                  "io_node_list",  "nb_proc",
                                                  "num_io_nodes",  "striping_factor",
                                                  "striping_unit", "mpi_assert_memory_alloc_kinds"};
// The known ones of `from`, over those of `into`. A hint that `into` has already gets the new value.
void take_hints(Info& into, const Info::Entries& from, Hints known);
Info::Entries hints_of(MPI_Info info);  // all of it; MPI_INFO_NULL: none
MPI_Info new_info(const Info::Entries& entries);

// --- Texts that go to memory of the program

// All of it, which the program has room for; *length: without the zero byte.
void copy_text(const std::string& text, char* to, int* length);
// Its beginning, as much as *room bytes hold with a zero byte; afterwards *room is what all of it takes.
void copy_beginning(const std::string& text, char* to, int* room);

}  // namespace rondo_mpi
