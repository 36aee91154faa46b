#include "mpi/core/view.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "mpi/core/errors.h"
#include "mpi/core/external.h"
#include "mpi/core/type.h"

namespace rondo_mpi {

View::View() : View(0, byte_type(), byte_type(), "native", true) {}

// The rules are those of MPI for file types: made of whole elementary types, displacements that neither decrease nor
// are negative, and without overlaps where the file may be written.
View::View(MPI_Offset displacement, std::shared_ptr<const Type> etype, std::shared_ptr<const Type> filetype,
           std::string representation, bool writes)
    : displacement_(displacement),
      etype_(std::move(etype)),
      filetype_(std::move(filetype)),
      representation_(std::move(representation)) {
  require(displacement >= 0, MPI_ERR_ARG, "the displacement of a view is negative");
  require(external() || representation_ == "native" || representation_ == "internal", MPI_ERR_UNSUPPORTED_DATAREP,
          "Rondo knows the data representations native, internal and external32");
  etype_bytes_ = bytes_of(*etype_, 1);
  require(etype_bytes_ > 0 && bytes_of(*filetype_, 1) % etype_bytes_ == 0, MPI_ERR_ARG,
          "the file type is not made of the elementary type");
  add(*filetype_, 0, writes);
  extent_ = extent_of(*filetype_);
  require(!writes || runs_.empty() || extent_ >= runs_.back().offset + runs_.back().bytes - runs_.front().offset,
          MPI_ERR_IO, "tiles of the file type overlap, in a file that is open for writing");
}

MPI_Offset View::bytes_of(const Type& type, MPI_Count count) const {
  return external() ? external_size(type, count) : product(type.size, count);
}
// external32 has other sizes of elements, so a dense type is as long as its elements are there.
MPI_Offset View::extent_of(const Type& type) const {
  return external() && type.dense ? external_size(type, 1) : type.extent();
}

// Flattens the type into runs by offset. Neighboring runs become one.
void View::add(const Type& type, MPI_Offset offset, bool writes) {
  if (!type.dense) {
    for (const Piece& piece : type.pieces) {
      for (MPI_Count i = 0; i < piece.count; ++i) add(*piece.type, offset + piece.offset + i * piece.stride, writes);
    }
    return;
  }
  const MPI_Offset bytes = bytes_of(type, 1);
  if (bytes == 0) return;
  const MPI_Offset end = runs_.empty() ? 0 : runs_.back().offset + (writes ? runs_.back().bytes : 0);
  require(offset >= end, MPI_ERR_IO,
          writes ? "the file type's displacements overlap, decrease or are negative"
                 : "the file type's displacements decrease or are negative");
  if (!runs_.empty() && offset == runs_.back().offset + runs_.back().bytes) {
    runs_.back().bytes += bytes;
  } else {
    runs_.push_back({offset, bytes});
    before_.push_back(bytes_);
  }
  bytes_ += bytes;
}

// Finds the tile by division, then the run by a binary search among those of one tile.
View::Run View::at(MPI_Offset position) const {
  if (bytes_ == 0) return {displacement_, 0};
  // Dense tiles are one run without end.
  if (runs_.size() == 1 && bytes_ == extent_) {
    return {sum(displacement_, sum(runs_[0].offset, position, MPI_ERR_ARG), MPI_ERR_ARG),
            std::numeric_limits<MPI_Offset>::max()};
  }
  const MPI_Offset tile = position / bytes_, within = position % bytes_;
  const auto run = static_cast<size_t>(std::upper_bound(before_.begin(), before_.end(), within) - before_.begin() - 1);
  const MPI_Offset skipped = within - before_[run];
  const MPI_Offset from = sum(product(tile, extent_, MPI_ERR_ARG), runs_[run].offset + skipped, MPI_ERR_ARG);
  return {sum(displacement_, from, MPI_ERR_ARG), runs_[run].bytes - skipped};
}

// It costs a search for each run.
View::Run View::range(MPI_Offset position, MPI_Offset bytes) const {
  const MPI_Offset behind = sum(position, bytes, MPI_ERR_ARG);
  MPI_Offset begin = std::numeric_limits<MPI_Offset>::max(), end = 0;
  while (position < behind) {
    const Run run = at(position);
    const MPI_Offset length = std::min(run.bytes, behind - position);
    begin = std::min(begin, run.offset);
    end = std::max(end, sum(run.offset, length, MPI_ERR_ARG));
    position += length;
  }
  return {begin, end - begin};
}

// An offset inside of a gap counts what lies before the gap.
MPI_Offset View::before(MPI_Offset offset) const {
  if (bytes_ == 0 || extent_ == 0 || offset <= displacement_) return 0;
  const MPI_Offset tile = (offset - displacement_) / extent_, within = (offset - displacement_) % extent_;
  MPI_Offset positions = tile * bytes_;
  // Runs before the offset count whole, those behind it not at all.
  for (const Run& run : runs_) positions += std::clamp<MPI_Offset>(within - run.offset, 0, run.bytes);
  return positions;
}

}  // namespace rondo_mpi
