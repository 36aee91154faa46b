// A table of handles that is full refuses one more, and takes one again once another was freed.
#include "mpi/core/handles.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>

#include "mpi/core/errors.h"

namespace rondo_mpi {
namespace {

struct Thing {
  MPI_Info handle{};
};

TEST_CASE("a program that frees no handle is told so") {
  constexpr size_t kMost = 4096 * 1024;
  const auto table = std::make_unique<Table<Thing>>(MPI_INFO_NULL, MPI_ERR_INFO);
  const auto thing = std::make_shared<Thing>();  // of all of them: the table's slots alone take 64 MiB
  MPI_Info first = MPI_INFO_NULL;
  for (size_t i = 0; i < kMost; ++i) {
    const MPI_Info added = table->add(thing);
    if (i == 0) first = added;
  }
  int code = MPI_SUCCESS;
  try {
    table->add(thing);
  } catch (const Failure& failure) {
    code = failure.code;
  }
  CHECK(code == MPI_ERR_OTHER);
  CHECK(table->count() == kMost);
  CHECK(table->remove(first) == thing);
  CHECK(table->add(thing) == first);
}

}  // namespace
}  // namespace rondo_mpi
