#include "mpi/core/type.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "mpi/core/errors.h"
#include "mpi/core/world.h"

namespace rondo_mpi {

// Bounds are as in MPI-4, 5.1.7. Sums are checked: displacements of a program may overflow.
std::shared_ptr<Type> type_of_pieces(int combiner, std::vector<Piece> pieces) {
  auto made = std::make_shared<Type>();
  made->combiner = combiner;
  constexpr MPI_Aint kNone = std::numeric_limits<MPI_Aint>::max();
  MPI_Aint lb = kNone, ub = -kNone, true_lb = kNone, true_ub = -kNone;
  std::optional<MPI_Aint> marked_lb, marked_ub;  // MPI_LB and MPI_UB
  MPI_Aint end = 0;                              // of the pieces so far, while they are one run from 0
  bool run = true;
  for (const Piece& piece : pieces) {
    const Type& type = *piece.type;
    if (piece.count == 0) continue;
    const MPI_Aint last = sum(piece.offset, product(piece.stride, piece.count - 1));
#ifdef MPI_LB
    // Marks of MPI-1: they have no data and set the bounds, whatever the other pieces have.
    if (type.handle == MPI_LB) {
      marked_lb = std::min(marked_lb.value_or(kNone), piece.offset);
      continue;
    }
    if (type.handle == MPI_UB) {
      marked_ub = std::max(marked_ub.value_or(-kNone), piece.offset);
      continue;
    }
#endif
    const MPI_Aint lowest = std::min(piece.offset, last), highest = std::max(piece.offset, last);
    lb = std::min<MPI_Aint>(lb, sum(lowest, type.lb));
    ub = std::max<MPI_Aint>(ub, sum(highest, type.ub));
    if (type.size > 0) {
      true_lb = std::min<MPI_Aint>(true_lb, sum(lowest, type.true_lb));
      true_ub = std::max<MPI_Aint>(true_ub, sum(highest, type.true_ub));
    }
    made->size = sum(made->size, product(type.size, piece.count));
    made->elements += type.elements * piece.count;  // of a byte at least
    made->alignment = std::max(made->alignment, type.alignment);
    run = run && type.dense && piece.offset == end && (piece.count == 1 || piece.stride == type.extent());
    end += type.size * piece.count;
  }
  made->lb = marked_lb.value_or(lb == kNone ? 0 : lb);
  made->ub = marked_ub.value_or(ub == -kNone ? 0 : ub);
  made->true_lb = true_lb == kNone ? 0 : true_lb;
  made->true_ub = true_ub == -kNone ? 0 : true_ub;
  sum(made->ub, product(made->lb, -1));  // the extent
  // A type is dense where one element is bytes 0 to size, and the next one begins there.
  made->dense = run && made->lb == 0 && made->ub == made->size;
  made->pieces = std::move(pieces);
  return made;
}

const std::shared_ptr<const Type>& byte_type() {
  static const std::shared_ptr<const Type> byte = world().types.share(MPI_BYTE);
  return byte;
}

std::shared_ptr<Type> contiguous(MPI_Count count, const std::shared_ptr<const Type>& type) {
  return type_of_pieces(MPI_COMBINER_CONTIGUOUS, {{0, count, type->extent(), type}});
}

std::shared_ptr<Type> resized(const std::shared_ptr<const Type>& type, MPI_Aint lb, MPI_Aint extent) {
  auto made = type_of_pieces(MPI_COMBINER_RESIZED, {{0, 1, 0, type}});
  made->lb = lb;
  made->ub = sum(lb, extent);
  made->dense = type->dense && lb == 0 && extent == type->size;
  return made;
}

// MPI calls no copy function for a handle that it gives back, as MPI_Type_get_contents() does.
std::shared_ptr<Type> copy_of(const Type& type) {
  auto made = std::make_shared<Type>(type);
  made->attributes = Attributes();
  made->handle_uses = Type::HandleUses();
  return made;
}

// The copy shares the types that it is made of.
MPI_Datatype reveal(const Type& type) {
  return world().types.predefined(type.handle) ? type.handle : world().types.add(copy_of(type));
}

namespace {

struct KeptHandle {
  explicit KeptHandle(const std::shared_ptr<const Type>& of) : type(of) {
    type->handle_uses.with([](Type::HandleUses& uses) { ++uses.reductions; });
  }
  KeptHandle(const KeptHandle&) = delete;
  ~KeptHandle() {
    bool last = false;
    type->handle_uses.with([&](Type::HandleUses& uses) { last = --uses.reductions == 0 && uses.freed; });
    if (last) world().types.remove(type->handle);
  }
  const std::shared_ptr<const Type> type;
};

}  // namespace

// Predefined types stay, and most reductions are of them.
std::shared_ptr<const Type> with_handle(const std::shared_ptr<const Type>& type) {
  if (type->combiner == MPI_COMBINER_NAMED) return type;
  return {std::make_shared<const KeptHandle>(type), type.get()};
}

void free_handle(const Type& type) {
  bool before = false, used = false;
  type.handle_uses.with([&](Type::HandleUses& uses) {
    before = std::exchange(uses.freed, true);
    used = uses.reductions > 0;
  });
  require(!before, MPI_ERR_TYPE, "the datatype was freed");
  if (!used) world().types.remove(type.handle);
}

void pack(const Type& type, const void* data, MPI_Count count, std::byte* out) {
  auto copy = [&](const std::byte* from, MPI_Count bytes) {
    std::memcpy(out, from, static_cast<size_t>(bytes));
    out += bytes;
    return true;
  };
  for_runs(type, static_cast<std::byte*>(const_cast<void*>(data)), count, copy);
}

MPI_Count unpack(const Type& type, void* data, MPI_Count count, const std::byte* in, MPI_Count bytes) {
  MPI_Count left = bytes;
  auto copy = [&](std::byte* to, MPI_Count length) {
    const MPI_Count now = std::min(length, left);
    if (now > 0) std::memcpy(to, in, static_cast<size_t>(now));
    in += now;
    left -= now;
    return left > 0;
  };
  if (bytes > 0) for_runs(type, static_cast<std::byte*>(data), count, copy);
  return bytes - left;
}

// Whole types first, then the elements of the last, incomplete one.
MPI_Count elements_in(const Type& type, MPI_Count bytes) {
  if (type.size == 0) return bytes == 0 ? 0 : MPI_UNDEFINED;
  MPI_Count found = bytes / type.size * type.elements;
  MPI_Count left = bytes % type.size;
  auto count = [&](const Type& element, MPI_Count number) {
    const MPI_Count now = std::min(number, left / element.size);
    found += now;
    left -= now * element.size;
    return now == number;
  };
  if (left > 0) for_elements(type, count);
  return left == 0 ? found : MPI_UNDEFINED;
}

// For MPI_Status_set_elements().
MPI_Count bytes_of_elements(const Type& type, MPI_Count elements) {
  if (type.elements == 0) return 0;
  MPI_Count bytes = elements / type.elements * type.size;
  MPI_Count left = elements % type.elements;
  auto count = [&](const Type& element, MPI_Count number) {
    const MPI_Count now = std::min(number, left);
    bytes += now * element.size;
    left -= now;
    return left > 0;
  };
  if (left > 0) for_elements(type, count);
  return bytes;
}

}  // namespace rondo_mpi
