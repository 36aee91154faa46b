#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// The bytes of a file that a rank reads and writes, and their order: those of a file type, tiled from a displacement
// on. Positions count these bytes alone; offsets count those of the file. Nothing of it changes after the constructor,
// so threads share it without a lock.
class View {
 public:
  View();  // all bytes
  // representation: "native", "internal" or "external32". Throws for types that no view can have. writes: the file is
  // open for that, and no byte may be twice in the view.
  View(MPI_Offset displacement, std::shared_ptr<const Type> etype, std::shared_ptr<const Type> filetype,
       std::string representation, bool writes);

  struct Run {
    MPI_Offset offset, bytes;
  };
  // Where the byte of a position lies, and how many of the next ones follow it there. Positions are bytes of the view,
  // not elementary types.
  Run at(MPI_Offset position) const;
  // The bytes of the file from the first to the last of those of `bytes` positions, one at least. Tiles and runs of a
  // view that is only read may lie among each other. Steps through its runs, as a transfer does.
  Run range(MPI_Offset position, MPI_Offset bytes) const;
  // How many positions lie before an offset.
  MPI_Offset before(MPI_Offset offset) const;
  // Whether bytes of the view are at least every sixteenth of the file's: then reading the gaps, too, costs less than a
  // system call for each run.
  bool close() const { return extent_ <= 16 * bytes_; }
  bool empty() const { return bytes_ == 0; }
  bool external() const { return representation_ == "external32"; }

  // Bytes in the file, by the view's representation.
  MPI_Offset bytes_of(const Type& type, MPI_Count count) const;
  MPI_Offset extent_of(const Type& type) const;
  MPI_Offset etype_bytes() const { return etype_bytes_; }

  MPI_Offset displacement() const { return displacement_; }
  const Type& etype() const { return *etype_; }
  const Type& filetype() const { return *filetype_; }
  const std::string& representation() const { return representation_; }

 private:
  // Appends the runs of one element at an offset of the tile.
  void add(const Type& type, MPI_Offset offset, bool writes);

  MPI_Offset displacement_;
  std::shared_ptr<const Type> etype_, filetype_;
  std::string representation_;
  MPI_Offset etype_bytes_ = 1;
  // The runs of one tile by offset, and the positions before each.
  std::vector<Run> runs_;
  std::vector<MPI_Offset> before_;
  MPI_Offset bytes_ = 0, extent_ = 0;  // of one tile: bytes of the view, and of the file to the next tile
};

}  // namespace rondo_mpi
