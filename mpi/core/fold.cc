#include "mpi/core/fold.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "mpi/core/errors.h"
#include "mpi/core/type.h"

namespace rondo_mpi {
namespace {

// inout[i] = in[i] op inout[i]: MPI's order of operands.
template <typename T, typename Combine>
void each(const void* in, void* inout, MPI_Count count, Combine combine) {
  const T* a = static_cast<const T*>(in);
  T* b = static_cast<T*>(inout);
  for (MPI_Count i = 0; i < count; ++i) b[i] = static_cast<T>(combine(a[i], b[i]));
}

// Any comparison with a NaN is false, so the first operand is the result. MPI leaves that open.
struct Least {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Greatest {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

struct Bfloat16 {  // the upper half of a float; rounded to nearest, ties to even
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  Bfloat16() = default;
  Bfloat16(float value) {
    const auto whole = std::bit_cast<uint32_t>(value);
    bits = static_cast<uint16_t>(value != value ? whole >> 16 | 0x40 : (whole + 0x7fff + (whole >> 16 & 1)) >> 16);
  }
};

struct Float16 {  // rounded to nearest, ties to even; not every compiler has it
  uint16_t bits;
  operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, magnitude = (bits & 0x7fffu) << 13;
    const float value = std::bit_cast<float>(magnitude) * 0x1p112f;  // the bias of the exponents
    const bool finite = (bits & 0x7c00) != 0x7c00;
    return std::bit_cast<float>((finite ? std::bit_cast<uint32_t>(value) : magnitude | 0x7f800000) | sign);
  }
  Float16() = default;
  Float16(float value) {
    const float magnitude = std::fabs(value);
    const auto whole = std::bit_cast<uint32_t>(magnitude);
    uint32_t rounded = ((whole + 0xfff + (whole >> 13 & 1)) >> 13) - (112 << 10);
    // Numbers below 2^-14 are multiples of 2^-24, and lrint() rounds to even, too. From 65520 on the nearest is
    // infinity.
    if (magnitude < 0x1p-14f) rounded = static_cast<uint32_t>(std::lrint(magnitude * 0x1p24f));
    if (magnitude >= 65520) rounded = 0x7c00;
    if (value != value) rounded = 0x7e00;
    bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16 & 0x8000) | static_cast<uint16_t>(rounded);
  }
};

template <typename T>
void fold_numbers(rondo::Op op, const void* in, void* inout, MPI_Count count) {
  switch (op) {
    case rondo::Op::kSum:
      return each<T>(in, inout, count, std::plus<>());
    case rondo::Op::kProduct:
      return each<T>(in, inout, count, std::multiplies<>());
    default:
      break;
  }
  // Complex numbers have no order.
  if constexpr (requires(T a, T b) { a < b; }) {
    if (op == rondo::Op::kMin) return each<T>(in, inout, count, Least());
    if (op == rondo::Op::kMax) return each<T>(in, inout, count, Greatest());
  }
  if constexpr (std::numeric_limits<T>::is_integer || std::is_same_v<T, __int128>) {
    switch (op) {
      case rondo::Op::kLogicalAnd:
        return each<T>(in, inout, count, [](T a, T b) { return a && b; });
      case rondo::Op::kLogicalOr:
        return each<T>(in, inout, count, [](T a, T b) { return a || b; });
      case rondo::Op::kLogicalXor:
        return each<T>(in, inout, count, [](T a, T b) { return !a != !b; });
      case rondo::Op::kBitAnd:
        return each<T>(in, inout, count, std::bit_and<>());
      case rondo::Op::kBitOr:
        return each<T>(in, inout, count, std::bit_or<>());
      case rondo::Op::kBitXor:
        return each<T>(in, inout, count, std::bit_xor<>());
      default:
        break;
    }
  }
  fail(MPI_ERR_OP, "the operation is not defined for the datatype");
}

// A pair's value as T, its index as I: the lower index wins among equal values.
template <typename T, typename I>
void fold_pairs(bool least, const void* in, void* inout, MPI_Count count) {
  struct Pair {
    T value;
    I index;
  };
  each<Pair>(in, inout, count, [least](const Pair& a, const Pair& b) {
    if (a.value == b.value) return a.index < b.index ? a : b;
    return (a.value < b.value) == least ? a : b;
  });
}

template <typename T>
void fold_pairs_of(const Type& index, bool least, const void* in, void* inout, MPI_Count count) {
  if (index.basic == Basic::kFloat) return fold_pairs<T, T>(least, in, inout, count);
  return fold_pairs<T, int>(least, in, inout, count);
}

// The index of a C pair is an int. Fortran's pairs are two numbers of one type.
void fold_pair_type(const Type& type, bool least, const void* in, void* inout, MPI_Count count) {
  const Type& value = *type.pieces[0].type;
  const Type& index = *type.pieces[1].type;
  if (value.basic == Basic::kFloat) {
    if (value.size == 4) return fold_pairs_of<float>(index, least, in, inout, count);
    if (value.size == 8) return fold_pairs_of<double>(index, least, in, inout, count);
    return fold_pairs_of<long double>(index, least, in, inout, count);
  }
  if (value.size == 2) return fold_pairs_of<int16_t>(index, least, in, inout, count);
  if (value.size == 4) return fold_pairs_of<int32_t>(index, least, in, inout, count);
  return fold_pairs_of<int64_t>(index, least, in, inout, count);
}

// Requires check_fold(): for a pair that is not defined the engine's operation may be missing, and elements may be
// shorter than the numbers they are folded as.
void fold_named(const Op& op, const Type& type, const void* in, void* inout, MPI_Count count) {
  if (op.handle == MPI_REPLACE) {
    std::memmove(inout, in, static_cast<size_t>(count * type.size));
    return;
  }
  if (op.handle == MPI_NO_OP) return;
  if (type.basic == Basic::kPair) return fold_pair_type(type, op.handle == MPI_MINLOC, in, inout, count);
  const rondo::Op how = *op.engine;
  const bool is_signed = type.basic != Basic::kUnsigned && type.basic != Basic::kByte;
  switch (type.basic) {
    case Basic::kFloat:
      if (type.dtype == rondo::DType::kBfloat16) return fold_numbers<Bfloat16>(how, in, inout, count);
      if (type.size == 2) return fold_numbers<Float16>(how, in, inout, count);
      if (type.size == 4) return fold_numbers<float>(how, in, inout, count);
      if (type.size == 8) return fold_numbers<double>(how, in, inout, count);
      if (type.handle == MPI_REAL16) return fold_numbers<__float128>(how, in, inout, count);
      return fold_numbers<long double>(how, in, inout, count);
    case Basic::kComplex:
      if (type.size == 8) return fold_numbers<std::complex<float>>(how, in, inout, count);
      if (type.size == 16) return fold_numbers<std::complex<double>>(how, in, inout, count);
      return fold_numbers<std::complex<long double>>(how, in, inout, count);
    default:
      if (type.size == 1)
        return is_signed ? fold_numbers<int8_t>(how, in, inout, count) : fold_numbers<uint8_t>(how, in, inout, count);
      if (type.size == 2)
        return is_signed ? fold_numbers<int16_t>(how, in, inout, count) : fold_numbers<uint16_t>(how, in, inout, count);
      if (type.size == 4)
        return is_signed ? fold_numbers<int32_t>(how, in, inout, count) : fold_numbers<uint32_t>(how, in, inout, count);
      if (type.size == 8)
        return is_signed ? fold_numbers<int64_t>(how, in, inout, count) : fold_numbers<uint64_t>(how, in, inout, count);
      return fold_numbers<__int128>(how, in, inout, count);
  }
}

// Which groups of types each operation has: MPI-4, 6.9.2.
bool defined(const Op& op, const Type& type) {
  if (op.user() || op.handle == MPI_REPLACE || op.handle == MPI_NO_OP) return true;
  if (op.handle == MPI_MINLOC || op.handle == MPI_MAXLOC) return type.basic == Basic::kPair;
  switch (*op.engine) {
    case rondo::Op::kSum:
    case rondo::Op::kProduct:
      return type.basic == Basic::kSigned || type.basic == Basic::kUnsigned || type.basic == Basic::kFloat ||
             (type.basic == Basic::kComplex && type.size > 4 && type.handle != MPI_COMPLEX32);
    case rondo::Op::kMin:
    case rondo::Op::kMax:
      return type.basic == Basic::kSigned || type.basic == Basic::kUnsigned || type.basic == Basic::kFloat;
    case rondo::Op::kLogicalAnd:
    case rondo::Op::kLogicalOr:
    case rondo::Op::kLogicalXor:
      return type.basic == Basic::kSigned || type.basic == Basic::kUnsigned || type.basic == Basic::kLogical;
    default:
      return type.basic == Basic::kSigned || type.basic == Basic::kUnsigned || type.basic == Basic::kByte;
  }
}

}  // namespace

void check_fold(const Op& op, const Type& type) {
  require(defined(op, type), MPI_ERR_OP, "the operation is not defined for the datatype");
}

void fold(const Op& op, const std::shared_ptr<const Type>& type, const void* in, void* inout, MPI_Count count) {
  if (op.function_c != nullptr) {
    MPI_Count length = count;
    MPI_Datatype handle = type->handle;
    op.function_c(const_cast<void*>(in), inout, &length, &handle);
  } else if (op.function != nullptr) {
    const std::byte* from = static_cast<const std::byte*>(in);
    std::byte* to = static_cast<std::byte*>(inout);
    // The program's function takes an int, so longer arrays go in parts.
    constexpr MPI_Count kMost = std::numeric_limits<int>::max();
    for (MPI_Count done = 0; done < count; done += kMost) {
      int length = static_cast<int>(std::min(count - done, kMost));
      MPI_Datatype handle = type->handle;
      op.function(const_cast<std::byte*>(from + done * type->extent()), to + done * type->extent(), &length, &handle);
    }
  } else {
    fold_named(op, *type, in, inout, count);
  }
}

// Elements with gaps are spread out, as the program's function expects them.
void fold_packed(const Op& op, const std::shared_ptr<const Type>& of, const void* in, void* inout, MPI_Count count) {
  const Type& type = *of;
  if (type.dense) return fold(op, of, in, inout, count);
  if (count == 0) return;
  const MPI_Count bytes = count * type.size;
  // Types may reach below their address, and with a negative extent each element lies below the one before: `before` is
  // where the first element's address is in the memory.
  const MPI_Aint last = type.extent() * (count - 1);
  const MPI_Aint before = -(std::min({type.true_lb, type.lb, MPI_Aint{0}}) + std::min<MPI_Aint>(last, 0));
  const MPI_Aint end = std::max({type.true_ub, type.ub, MPI_Aint{0}}) + std::max<MPI_Aint>(last, 0);
  std::vector<std::byte> a(static_cast<size_t>(before + end)), b(a.size());
  unpack(type, a.data() + before, count, static_cast<const std::byte*>(in), bytes);
  unpack(type, b.data() + before, count, static_cast<const std::byte*>(inout), bytes);
  fold(op, of, a.data() + before, b.data() + before, count);
  pack(type, b.data() + before, count, static_cast<std::byte*>(inout));
}

}  // namespace rondo_mpi
