// Datatypes: constructors, what they were made of, packing. All calls are local. A new type shares those that it is
// made of, so the program may free them at once (MPI-4, 5.1.9).

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "mpi/core/attributes.h"
#include "mpi/core/errors.h"
#include "mpi/core/external.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

using Part = std::shared_ptr<const Type>;

// A share, which the new type keeps.
Part part(MPI_Datatype type) { return type_of(type).shared_from_this(); }

MPI_Datatype publish(std::shared_ptr<Type> type) { return world().types.add(std::move(type)); }

// What MPI_Type_get_contents gives back. An argument that is int in one form and MPI_Count in the other comes back as
// it was given.
struct Contents {
  explicit Contents(const std::shared_ptr<Type>& type) : type_(type) {}
  Contents& number(int value) {
    type_->integers.push_back(value);
    return *this;
  }
  Contents& number(MPI_Count value) {
    type_->large.push_back(value);
    return *this;
  }
  template <typename Number>
  Contents& numbers(MPI_Count count, const Number values[]) {
    for (MPI_Count i = 0; i < count; ++i) number(values[i]);
    return *this;
  }
  Contents& address(MPI_Aint value) {
    type_->addresses.push_back(value);
    return *this;
  }
  template <typename Number>
  Contents& addresses(MPI_Count count, const Number values[]) {
    for (MPI_Count i = 0; i < count; ++i) address(values[i]);
    return *this;
  }
  Contents& of(Part part) {
    type_->parts.push_back(std::move(part));
    return *this;
  }

 private:
  const std::shared_ptr<Type>& type_;
};

void check_count(MPI_Count count) { require(count >= 0, MPI_ERR_COUNT, "a count or block length is negative"); }

std::shared_ptr<Type> made_of(int combiner, std::vector<Piece> pieces) {
  return type_of_pieces(combiner, std::move(pieces));
}

// A block of `length` elements, one after the other.
Piece block(MPI_Aint at, MPI_Count length, const Part& type) {
  check_count(length);
  return {at, length, type->extent(), type};
}

// Displacements count `unit` bytes: extents of the type, or 1 for the h forms.
template <typename Length, typename Displacement>
std::vector<Piece> blocks(MPI_Count count, const Length lengths[], const Displacement displacements[], MPI_Aint unit,
                          const Part& type) {
  check_count(count);
  std::vector<Piece> pieces;
  for (MPI_Count i = 0; i < count; ++i) {
    pieces.push_back(block(product(displacements[i], unit), lengths[i], type));
  }
  return pieces;
}
template <typename Displacement>
std::vector<Piece> equal_blocks(MPI_Count count, MPI_Count length, const Displacement displacements[], MPI_Aint unit,
                                const Part& type) {
  check_count(count);
  std::vector<Piece> pieces;
  for (MPI_Count i = 0; i < count; ++i) pieces.push_back(block(product(displacements[i], unit), length, type));
  return pieces;
}

// stride: bytes from block to block. A vector is one piece, not one for each block.
std::shared_ptr<Type> vector(int combiner, MPI_Count count, MPI_Count length, MPI_Aint stride, const Part& type) {
  check_count(count);
  check_count(length);
  if (length == 1) return made_of(combiner, {{0, count, stride, type}});
  return made_of(combiner, {{0, count, stride, contiguous(length, type)}});
}

// The part of `sizes` in one dimension: `count` elements from `start` on, `stride` bytes apart, inside of all of
// `size`.
Part slice(const Part& inner, MPI_Aint bytes, MPI_Count size, MPI_Count start, MPI_Count count) {
  auto made = type_of_pieces(MPI_COMBINER_SUBARRAY, {{product(start, bytes), count, bytes, inner}});
  return resized(made, 0, product(size, bytes));
}

// The extent is that of the whole array, so the next element begins behind it.
template <typename Count>
std::shared_ptr<Type> subarray(int ndims, const Count sizes[], const Count subsizes[], const Count starts[], int order,
                               const Part& type) {
  require(ndims > 0, MPI_ERR_ARG, "there are no dimensions");
  require(order == MPI_ORDER_C || order == MPI_ORDER_FORTRAN, MPI_ERR_ARG, "the order is neither C's nor Fortran's");
  // From the dimension that changes fastest outwards. Each step takes the type of the one before as its element.
  Part inner = type;
  for (int k = 0; k < ndims; ++k) {
    const int d = order == MPI_ORDER_C ? ndims - 1 - k : k;
    require(sizes[d] >= 1 && subsizes[d] >= 1 && starts[d] >= 0 && subsizes[d] <= sizes[d] - starts[d], MPI_ERR_ARG,
            "a part does not lie in the array");
    inner = slice(inner, inner->extent(), sizes[d], starts[d], subsizes[d]);
  }
  auto made = std::make_shared<Type>(*inner);
  made->combiner = MPI_COMBINER_SUBARRAY;
  return made;
}

// What a rank has of one dimension of a distributed array: blocks of `block` elements, every `ranks` of them. Pairs are
// a block's first element and its length.
std::vector<std::pair<MPI_Count, MPI_Count>> owned(MPI_Count size, int distribution, int argument, int ranks,
                                                   int rank) {
  if (distribution == MPI_DISTRIBUTE_NONE) return {{0, size}};
  MPI_Count block = argument;
  if (argument == MPI_DISTRIBUTE_DFLT_DARG)
    block = distribution == MPI_DISTRIBUTE_CYCLIC ? 1 : (size + ranks - 1) / ranks;
  require(block > 0, MPI_ERR_ARG, "a distribution argument is not positive");
  std::vector<std::pair<MPI_Count, MPI_Count>> made;
  if (distribution == MPI_DISTRIBUTE_BLOCK) {
    require(block * ranks >= size, MPI_ERR_ARG, "the blocks of all ranks do not cover the array");
    const MPI_Count start = block * rank;
    if (start < size) made.push_back({start, std::min(block, size - start)});
    return made;
  }
  require(distribution == MPI_DISTRIBUTE_CYCLIC, MPI_ERR_ARG, "a distribution is not known");
  for (MPI_Count start = block * rank; start < size; start += block * ranks) {
    made.push_back({start, std::min(block, size - start)});
  }
  return made;
}

// Each dimension is a type of the ones that change faster, as in subarray().
template <typename Count>
std::shared_ptr<Type> darray(int size, int rank, int ndims, const Count gsizes[], const int distribs[],
                             const int dargs[], const int psizes[], int order, const Part& type) {
  require(ndims > 0, MPI_ERR_ARG, "there are no dimensions");
  require(rank >= 0 && rank < size, MPI_ERR_ARG, "the rank is not below the size");
  for (int d = 0; d < ndims; ++d) {
    require(gsizes[d] > 0 && psizes[d] > 0, MPI_ERR_ARG, "a size of the array, or of the processes, is not positive");
  }
  // MPI's grid of processes is row-major, whatever the order of the array.
  std::vector<int> at(static_cast<size_t>(ndims));
  for (int d = ndims - 1, left = rank; d >= 0; --d) {
    at[static_cast<size_t>(d)] = left % psizes[d];
    left /= psizes[d];
  }
  Part inner = type;
  for (int k = 0; k < ndims; ++k) {
    const int d = order == MPI_ORDER_C ? ndims - 1 - k : k;
    const MPI_Aint bytes = inner->extent();
    std::vector<Piece> pieces;
    for (const auto& [start, count] : owned(gsizes[d], distribs[d], dargs[d], psizes[d], at[static_cast<size_t>(d)])) {
      pieces.push_back({product(start, bytes), count, bytes, inner});
    }
    inner = resized(type_of_pieces(MPI_COMBINER_DARRAY, std::move(pieces)), 0, product(gsizes[d], bytes));
  }
  auto made = std::make_shared<Type>(*inner);
  made->combiner = MPI_COMBINER_DARRAY;
  return made;
}

// The extent is padded to the alignment of the largest element, unless MPI_LB or MPI_UB sets the bounds.
template <typename Count, typename Displacement>
std::shared_ptr<Type> structure(MPI_Count count, const Count lengths[], const Displacement displacements[],
                                const MPI_Datatype types[]) {
  check_count(count);
  std::vector<Piece> pieces;
  for (MPI_Count i = 0; i < count; ++i) {
    const Part type = part(types[i]);
    pieces.push_back(block(static_cast<MPI_Aint>(displacements[i]), lengths[i], type));
  }
  auto made = made_of(MPI_COMBINER_STRUCT, std::move(pieces));
#ifdef MPI_LB
  for (MPI_Count i = 0; i < count; ++i) {
    if (types[i] == MPI_LB || types[i] == MPI_UB) return made;
  }
#endif
  if (const MPI_Aint rest = made->extent() % made->alignment; rest != 0) {  // as a compiler pads it
    made->ub = sum(made->ub, made->alignment - rest);
    made->dense = false;
  }
  return made;
}

}  // namespace

// one, many: how Contents takes what is an address in one form and a count in the other.
#define CONSTRUCTORS(C, A, one, many, suffix)                                                                          \
  void MPI_Type_contiguous##suffix(C count, MPI_Datatype oldtype, MPI_Datatype* newtype) {                             \
    check_count(count);                                                                                                \
    auto made = contiguous(count, part(oldtype));                                                                      \
    Contents(made).number(count).of(part(oldtype));                                                                    \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_vector##suffix(C count, C blocklength, C stride, MPI_Datatype oldtype, MPI_Datatype* newtype) {        \
    const Part old = part(oldtype);                                                                                    \
    auto made = vector(MPI_COMBINER_VECTOR, count, blocklength, product(stride, old->extent()), old);                  \
    Contents(made).number(count).number(blocklength).number(stride).of(old);                                           \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_create_hvector##suffix(C count, C blocklength, A stride, MPI_Datatype oldtype,                         \
                                       MPI_Datatype* newtype) {                                                        \
    const Part old = part(oldtype);                                                                                    \
    auto made = vector(MPI_COMBINER_HVECTOR, count, blocklength, static_cast<MPI_Aint>(stride), old);                  \
    Contents(made).number(count).number(blocklength).one(stride).of(old);                                              \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_indexed##suffix(C count, const C lengths[], const C displacements[], MPI_Datatype oldtype,             \
                                MPI_Datatype* newtype) {                                                               \
    const Part old = part(oldtype);                                                                                    \
    auto made = made_of(MPI_COMBINER_INDEXED, blocks(count, lengths, displacements, old->extent(), old));              \
    Contents(made).number(count).numbers(count, lengths).numbers(count, displacements).of(old);                        \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_create_hindexed##suffix(C count, const C lengths[], const A displacements[], MPI_Datatype oldtype,     \
                                        MPI_Datatype* newtype) {                                                       \
    const Part old = part(oldtype);                                                                                    \
    auto made = made_of(MPI_COMBINER_HINDEXED, blocks(count, lengths, displacements, 1, old));                         \
    Contents(made).number(count).numbers(count, lengths).many(count, displacements).of(old);                           \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_create_indexed_block##suffix(C count, C blocklength, const C displacements[], MPI_Datatype oldtype,    \
                                             MPI_Datatype* newtype) {                                                  \
    const Part old = part(oldtype);                                                                                    \
    auto made =                                                                                                        \
        made_of(MPI_COMBINER_INDEXED_BLOCK, equal_blocks(count, blocklength, displacements, old->extent(), old));      \
    Contents(made).number(count).number(blocklength).numbers(count, displacements).of(old);                            \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_create_hindexed_block##suffix(C count, C blocklength, const A displacements[], MPI_Datatype oldtype,   \
                                              MPI_Datatype* newtype) {                                                 \
    const Part old = part(oldtype);                                                                                    \
    auto made = made_of(MPI_COMBINER_HINDEXED_BLOCK, equal_blocks(count, blocklength, displacements, 1, old));         \
    Contents(made).number(count).number(blocklength).many(count, displacements).of(old);                               \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_create_struct##suffix(C count, const C lengths[], const A displacements[], const MPI_Datatype types[], \
                                      MPI_Datatype* newtype) {                                                         \
    auto made = structure(count, lengths, displacements, types);                                                       \
    Contents contents(made);                                                                                           \
    contents.number(count).numbers(count, lengths).many(count, displacements);                                         \
    for (C i = 0; i < count; ++i) contents.of(part(types[i]));                                                         \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_create_subarray##suffix(int ndims, const C sizes[], const C subsizes[], const C starts[], int order,   \
                                        MPI_Datatype oldtype, MPI_Datatype* newtype) {                                 \
    auto made = subarray(ndims, sizes, subsizes, starts, order, part(oldtype));                                        \
    Contents(made)                                                                                                     \
        .number(ndims)                                                                                                 \
        .numbers(ndims, sizes)                                                                                         \
        .numbers(ndims, subsizes)                                                                                      \
        .numbers(ndims, starts)                                                                                        \
        .number(order)                                                                                                 \
        .of(part(oldtype));                                                                                            \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_create_darray##suffix(int size, int rank, int ndims, const C gsizes[], const int distribs[],           \
                                      const int dargs[], const int psizes[], int order, MPI_Datatype oldtype,          \
                                      MPI_Datatype* newtype) {                                                         \
    auto made = darray(size, rank, ndims, gsizes, distribs, dargs, psizes, order, part(oldtype));                      \
    Contents(made)                                                                                                     \
        .number(size)                                                                                                  \
        .number(rank)                                                                                                  \
        .number(ndims)                                                                                                 \
        .numbers(ndims, gsizes)                                                                                        \
        .numbers(ndims, distribs)                                                                                      \
        .numbers(ndims, dargs)                                                                                         \
        .numbers(ndims, psizes)                                                                                        \
        .number(order)                                                                                                 \
        .of(part(oldtype));                                                                                            \
    *newtype = publish(made);                                                                                          \
  }                                                                                                                    \
  void MPI_Type_create_resized##suffix(MPI_Datatype oldtype, A lb, A extent, MPI_Datatype* newtype) {                  \
    auto made = resized(part(oldtype), static_cast<MPI_Aint>(lb), static_cast<MPI_Aint>(extent));                      \
    Contents(made).one(lb).one(extent).of(part(oldtype));                                                              \
    *newtype = publish(made);                                                                                          \
  }
CONSTRUCTORS(int, MPI_Aint, address, addresses, )
CONSTRUCTORS(MPI_Count, MPI_Count, number, numbers, _c)

// --- Sizes and packing

namespace {

// MPI names one representation for these calls.
void check_external(const char* datarep) {
  require(std::strcmp(datarep, "external32") == 0, MPI_ERR_ARG, "the only data representation is external32");
}

// Packed data of MPI_Pack() has no header: ranks run one build. *position moves only after success.
void pack_at(const void* in, MPI_Count count, MPI_Datatype datatype, void* out, MPI_Count outsize, MPI_Count* position,
             bool external) {
  check_count(count);
  const std::shared_ptr<const Type> used = used_type(datatype);
  const Type& type = *used;
  const MPI_Count native = product(count, type.size), bytes = external ? external_size(type, count) : native;
  require(*position >= 0 && *position <= outsize && bytes <= outsize - *position, MPI_ERR_ARG,
          "the buffer has no room");
  std::byte* to = static_cast<std::byte*>(out) + *position;
  if (external) {
    std::vector<std::byte> packed(static_cast<size_t>(native));
    pack(type, in, count, packed.data());
    to_external(type, packed.data(), count, to);
  } else {
    pack(type, in, count, to);
  }
  *position += bytes;
}
void unpack_at(const void* in, MPI_Count insize, MPI_Count* position, void* out, MPI_Count count, MPI_Datatype datatype,
               bool external) {
  check_count(count);
  const std::shared_ptr<const Type> used = used_type(datatype);
  const Type& type = *used;
  const MPI_Count native = product(count, type.size), bytes = external ? external_size(type, count) : native;
  require(*position >= 0 && *position <= insize && bytes <= insize - *position, MPI_ERR_ARG,
          "the buffer ends before the data");
  const std::byte* from = static_cast<const std::byte*>(in) + *position;
  std::vector<std::byte> packed(external ? static_cast<size_t>(native) : 0);
  if (external) from_external(type, from, count, packed.data());
  unpack(type, out, count, external ? packed.data() : from, native);
  *position += bytes;
}

}  // namespace

// Bytes of data, without gaps.
void MPI_Type_size_c(MPI_Datatype datatype, MPI_Count* size) { *size = type_of(datatype).size; }
void MPI_Type_get_extent_c(MPI_Datatype datatype, MPI_Count* lb, MPI_Count* extent) {
  *lb = type_of(datatype).lb;
  *extent = type_of(datatype).extent();
}
// From the first byte of data to the last, whatever lb and ub say.
void MPI_Type_get_true_extent_c(MPI_Datatype datatype, MPI_Count* lb, MPI_Count* extent) {
  const Type& type = type_of(datatype);
  *lb = type.true_lb;
  *extent = type.true_ub - type.true_lb;
}
// The communicator is read for its error handler alone.
void MPI_Pack_c(const void* inbuf, MPI_Count incount, MPI_Datatype datatype, void* outbuf, MPI_Count outsize,
                MPI_Count* position, MPI_Comm) {
  pack_at(inbuf, incount, datatype, outbuf, outsize, position, false);
}
void MPI_Unpack_c(const void* inbuf, MPI_Count insize, MPI_Count* position, void* outbuf, MPI_Count outcount,
                  MPI_Datatype datatype, MPI_Comm) {
  unpack_at(inbuf, insize, position, outbuf, outcount, datatype, false);
}
// It is exact: packing adds nothing.
void MPI_Pack_size_c(MPI_Count incount, MPI_Datatype datatype, MPI_Comm comm, MPI_Count* size) {
  comm_of(comm);
  check_count(incount);
  *size = product(incount, used_type(datatype)->size);
}
// external32 is big-endian, with sizes of its own (core/external.h).
void MPI_Pack_external_c(const char* datarep, const void* inbuf, MPI_Count incount, MPI_Datatype datatype, void* outbuf,
                         MPI_Count outsize, MPI_Count* position) {
  check_external(datarep);
  pack_at(inbuf, incount, datatype, outbuf, outsize, position, true);
}
void MPI_Unpack_external_c(const char* datarep, const void* inbuf, MPI_Count insize, MPI_Count* position, void* outbuf,
                           MPI_Count outcount, MPI_Datatype datatype) {
  check_external(datarep);
  unpack_at(inbuf, insize, position, outbuf, outcount, datatype, true);
}
void MPI_Pack_external_size_c(const char* datarep, MPI_Count incount, MPI_Datatype datatype, MPI_Count* size) {
  check_external(datarep);
  check_count(incount);
  *size = external_size(*used_type(datatype), incount);
}

// A copy keeps its own attributes; copy functions run before it has a handle. It is committed if the original is.
void MPI_Type_dup(MPI_Datatype oldtype, MPI_Datatype* newtype) {
  *newtype = MPI_DATATYPE_NULL;  // also after an error
  const Part old = part(oldtype);
  auto made = type_of_pieces(MPI_COMBINER_DUP, {{0, 1, old->extent(), old}});
  made->lb = old->lb;
  made->ub = old->ub;
  made->dense = old->dense;
  made->committed = old->committed;
  made->basic = old->basic;
  made->place = old->place;
  made->dtype = old->dtype;
  if (old->basic == Basic::kPair) made->pieces = old->pieces;
  made->parts = {old};
  try {
    copy_attributes(oldtype, old->attributes, made->attributes);
    *newtype = publish(made);
  } catch (...) {
    drop_attributes(oldtype, made->attributes);
    throw;
  }
}
// Nothing is compiled: the flag is what calls that move data require.
void MPI_Type_commit(MPI_Datatype* datatype) { type_of(*datatype).committed = true; }
// Calls and types that use it share it.
void MPI_Type_free(MPI_Datatype* datatype) {
  Type& type = type_of(*datatype);
  require(!world().types.predefined(*datatype), MPI_ERR_TYPE, "a predefined datatype cannot be freed");
  delete_attributes(*datatype, type.attributes);
  free_handle(type);
  *datatype = MPI_DATATYPE_NULL;
}

// Types of Fortran by precision and range: the smallest that has them. One for each pair, which is never freed.

namespace {

// MPI says that equal arguments give the same handle.
MPI_Datatype fortran(int combiner, std::vector<int> integers, MPI_Datatype same) {
  static std::mutex* mutex = new std::mutex;
  static auto* made = new std::map<std::pair<int, std::vector<int>>, MPI_Datatype>;
  std::lock_guard lock(*mutex);
  MPI_Datatype& handle = (*made)[{combiner, integers}];
  if (handle == MPI_Datatype{}) {
    auto type = copy_of(type_of(same));
    type->combiner = combiner;
    type->integers = std::move(integers);
    handle = publish(std::move(type));
  }
  return handle;
}

// IEEE: 6 digits and 10^37 of 32 bits, 15 digits and 10^307 of 64.
bool is_single(int p, int r) {
  const bool single = (p == MPI_UNDEFINED || p <= 6) && (r == MPI_UNDEFINED || r <= 37);
  require(single || ((p == MPI_UNDEFINED || p <= 15) && (r == MPI_UNDEFINED || r <= 307)), MPI_ERR_ARG,
          "no real has this precision and range");
  return single;
}

}  // namespace

// MPI's r is the number of decimal digits: 2, 4, 9 and 18 are what 1, 2, 4 and 8 bytes hold.
void MPI_Type_create_f90_integer(int r, MPI_Datatype* newtype) {
  require(r <= 18, MPI_ERR_ARG, "no integer has this range");
  *newtype = fortran(MPI_COMBINER_F90_INTEGER, {r},
                     r <= 2   ? MPI_INTEGER1
                     : r <= 4 ? MPI_INTEGER2
                     : r <= 9 ? MPI_INTEGER4
                              : MPI_INTEGER8);
}
void MPI_Type_create_f90_real(int p, int r, MPI_Datatype* newtype) {
  *newtype = fortran(MPI_COMBINER_F90_REAL, {p, r}, is_single(p, r) ? MPI_REAL4 : MPI_REAL8);
}
void MPI_Type_create_f90_complex(int p, int r, MPI_Datatype* newtype) {
  *newtype = fortran(MPI_COMBINER_F90_COMPLEX, {p, r}, is_single(p, r) ? MPI_COMPLEX8 : MPI_COMPLEX16);
}
void MPI_Type_match_size(int typeclass, int size, MPI_Datatype* datatype) {
  *datatype = MPI_DATATYPE_NULL;
  if (typeclass == MPI_TYPECLASS_INTEGER) {
    *datatype = size == 1   ? MPI_INTEGER1
                : size == 2 ? MPI_INTEGER2
                : size == 4 ? MPI_INTEGER4
                : size == 8 ? MPI_INTEGER8
                            : MPI_DATATYPE_NULL;
  } else if (typeclass == MPI_TYPECLASS_REAL) {
    *datatype = size == 4 ? MPI_REAL4 : size == 8 ? MPI_REAL8 : size == 16 ? MPI_REAL16 : MPI_DATATYPE_NULL;
  } else if (typeclass == MPI_TYPECLASS_COMPLEX) {
    *datatype = size == 8 ? MPI_COMPLEX8 : size == 16 ? MPI_COMPLEX16 : size == 32 ? MPI_COMPLEX32 : MPI_DATATYPE_NULL;
  }
  require(*datatype != MPI_DATATYPE_NULL, MPI_ERR_ARG, "no type of this class has the size");
}
// MPI_DATATYPE_NULL where there is no such pair, which is no error.
void MPI_Type_get_value_index(MPI_Datatype value_type, MPI_Datatype index_type, MPI_Datatype* pair_type) {
  const Type &value = type_of(value_type), &index = type_of(index_type);
  *pair_type = MPI_DATATYPE_NULL;
  for (const MPI_Datatype pair :
       {MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, MPI_LONG_DOUBLE_INT}) {
    const Type& type = type_of(pair);
    if (type.pieces[0].type.get() == &value && type.pieces[1].type.get() == &index) *pair_type = pair;
  }
}

// --- What a type was made of

namespace {

void check_large(const Type& type) {
  require(type.large.empty(), MPI_ERR_TYPE, "the type was made by a function whose name ends in _c: ask by such a one");
}

// The program frees the handles of types, unless they are predefined ones.
template <typename Count>
void contents(const Type& type, Count max_integers, Count max_addresses, Count max_types, int integers[],
              MPI_Aint addresses[], MPI_Datatype types[]) {
  require(type.combiner != MPI_COMBINER_NAMED, MPI_ERR_TYPE, "a named datatype has no contents");
  require(static_cast<size_t>(max_integers) >= type.integers.size() &&
              static_cast<size_t>(max_addresses) >= type.addresses.size() &&
              static_cast<size_t>(max_types) >= type.parts.size(),
          MPI_ERR_ARG, "an array is too short for the contents");
  std::copy(type.integers.begin(), type.integers.end(), integers);
  std::copy(type.addresses.begin(), type.addresses.end(), addresses);
  for (size_t i = 0; i < type.parts.size(); ++i) types[i] = reveal(*type.parts[i]);
}

}  // namespace

// MPI makes this form an error for a type that has large counts.
void MPI_Type_get_envelope(MPI_Datatype datatype, int* num_integers, int* num_addresses, int* num_datatypes,
                           int* combiner) {
  const Type& type = type_of(datatype);
  check_large(type);
  *num_integers = static_cast<int>(type.integers.size());
  *num_addresses = static_cast<int>(type.addresses.size());
  *num_datatypes = static_cast<int>(type.parts.size());
  *combiner = type.combiner;
}
void MPI_Type_get_envelope_c(MPI_Datatype datatype, MPI_Count* num_integers, MPI_Count* num_addresses,
                             MPI_Count* num_large_counts, MPI_Count* num_datatypes, int* combiner) {
  const Type& type = type_of(datatype);
  *num_integers = static_cast<MPI_Count>(type.integers.size());
  *num_addresses = static_cast<MPI_Count>(type.addresses.size());
  *num_large_counts = static_cast<MPI_Count>(type.large.size());
  *num_datatypes = static_cast<MPI_Count>(type.parts.size());
  *combiner = type.combiner;
}
void MPI_Type_get_contents(MPI_Datatype datatype, int max_integers, int max_addresses, int max_datatypes,
                           int array_of_integers[], MPI_Aint array_of_addresses[], MPI_Datatype array_of_datatypes[]) {
  check_large(type_of(datatype));
  contents(type_of(datatype), max_integers, max_addresses, max_datatypes, array_of_integers, array_of_addresses,
           array_of_datatypes);
}
void MPI_Type_get_contents_c(MPI_Datatype datatype, MPI_Count max_integers, MPI_Count max_addresses,
                             MPI_Count max_large_counts, MPI_Count max_datatypes, int array_of_integers[],
                             MPI_Aint array_of_addresses[], MPI_Count array_of_large_counts[],
                             MPI_Datatype array_of_datatypes[]) {
  const Type& type = type_of(datatype);
  require(static_cast<size_t>(max_large_counts) >= type.large.size(), MPI_ERR_ARG,
          "an array is too short for the contents");
  contents(type, max_integers, max_addresses, max_datatypes, array_of_integers, array_of_addresses, array_of_datatypes);
  std::copy(type.large.begin(), type.large.end(), array_of_large_counts);
}

// Names of MPI-1, which programs still call.
void MPI_Type_extent(MPI_Datatype datatype, MPI_Aint* extent) { *extent = type_of(datatype).extent(); }
void MPI_Type_lb(MPI_Datatype datatype, MPI_Aint* displacement) { *displacement = type_of(datatype).lb; }
void MPI_Type_ub(MPI_Datatype datatype, MPI_Aint* displacement) { *displacement = type_of(datatype).ub; }

}  // namespace rondo_mpi::calls
