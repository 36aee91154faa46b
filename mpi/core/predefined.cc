#include "mpi/core/predefined.h"

#include <cstdint>
#include <cwchar>

#include "mpi/core/type.h"

namespace rondo_mpi {
namespace {

using rondo::DType;

// The engine's type of an integer of that many bytes. The engine has none of 16 bytes.
std::optional<DType> integer(size_t bytes, bool is_signed) {
  if (bytes == 1) return is_signed ? DType::kInt8 : DType::kUint8;
  if (bytes == 2) return is_signed ? DType::kInt16 : DType::kUint16;
  if (bytes == 4) return is_signed ? DType::kInt32 : DType::kUint32;
  if (bytes == 8) return is_signed ? DType::kInt64 : DType::kUint64;
  return std::nullopt;
}

// Makes the named types. A type's place is its number in the order of these calls, equal on all ranks, which run one
// build.
class Namer {
 public:
  Namer(Table<Type>& table, NamedTypes& order) : table_(table), order_(order) {}

  void element(MPI_Datatype handle, const char* name, Basic basic, size_t bytes, std::optional<DType> dtype = {}) {
    auto type = made(bytes, basic, name);
    type->dtype = dtype;
    type->alignment = static_cast<MPI_Aint>(basic == Basic::kComplex ? bytes / 2 : bytes);
    add(handle, type);
  }
  void integers(MPI_Datatype handle, const char* name, size_t bytes, bool is_signed = true) {
    element(handle, name, is_signed ? Basic::kSigned : Basic::kUnsigned, bytes, integer(bytes, is_signed));
  }
  // Those of 4 and 8 bytes are the engine's; long double is folded here.
  void floats(MPI_Datatype handle, const char* name, size_t bytes) {
    element(handle, name, Basic::kFloat, bytes,
            bytes == 4   ? std::optional(DType::kFloat32)
            : bytes == 8 ? std::optional(DType::kFloat64)
                         : std::nullopt);
  }
  // A value and its index, as a C struct of the two has them.
  template <typename Value, typename Index>
  void pair(MPI_Datatype handle, const char* name, MPI_Datatype value, MPI_Datatype index) {
    struct Both {
      Value value;
      Index index;
    };
    auto type = made(sizeof(Value) + sizeof(Index), Basic::kPair, name);
    type->pieces = {{0, 1, 0, table_.share(value)}, {offsetof(Both, index), 1, 0, table_.share(index)}};
    type->elements = 2;
    type->ub = sizeof(Both);
    type->true_ub = offsetof(Both, index) + sizeof(Index);
    type->dense = type->size == type->ub;
    type->alignment = alignof(Both);
    add(handle, type);
  }

 private:
  static std::shared_ptr<Type> made(size_t bytes, Basic basic, const char* name) {
    auto type = std::make_shared<Type>();
    type->size = type->ub = type->true_ub = static_cast<MPI_Aint>(bytes);
    type->committed = true;
    type->elements = bytes == 0 ? 0 : 1;
    type->basic = basic;
    type->name = name;
    return type;
  }
  void add(MPI_Datatype handle, const std::shared_ptr<Type>& type) {
    type->place = static_cast<uint8_t>(order_.size());
    order_.push_back(type);
    table_.name(handle, type);
  }
  Table<Type>& table_;
  NamedTypes& order_;
};

}  // namespace

#define NAMED(type) MPI_##type, "MPI_" #type

NamedTypes name_types(Table<Type>& table) {
  NamedTypes order;
  Namer name(table, order);
  name.element(NAMED(BYTE), Basic::kByte, 1, DType::kUint8);
  // kChar: a type without reductions.
  name.element(NAMED(PACKED), Basic::kChar, 1);
  name.integers(NAMED(CHAR), 1, std::is_signed_v<char>);  // the standard leaves it out; the other MPIs fold it
  name.element(NAMED(CHARACTER), Basic::kChar, 1);
  name.element(NAMED(WCHAR), Basic::kChar, sizeof(wchar_t));
  name.integers(NAMED(SIGNED_CHAR), 1);
  name.integers(NAMED(UNSIGNED_CHAR), 1, false);
  name.integers(NAMED(SHORT), sizeof(short));
  name.integers(NAMED(UNSIGNED_SHORT), sizeof(short), false);
  name.integers(NAMED(INT), sizeof(int));
  name.integers(NAMED(UNSIGNED), sizeof(int), false);
  name.integers(NAMED(LONG), sizeof(long));
  name.integers(NAMED(UNSIGNED_LONG), sizeof(long), false);
  name.integers(NAMED(LONG_LONG_INT), sizeof(long long));
  name.integers(NAMED(UNSIGNED_LONG_LONG), sizeof(long long), false);
  name.integers(NAMED(INT8_T), 1);
  name.integers(NAMED(INT16_T), 2);
  name.integers(NAMED(INT32_T), 4);
  name.integers(NAMED(INT64_T), 8);
  name.integers(NAMED(UINT8_T), 1, false);
  name.integers(NAMED(UINT16_T), 2, false);
  name.integers(NAMED(UINT32_T), 4, false);
  name.integers(NAMED(UINT64_T), 8, false);
  name.integers(NAMED(AINT), sizeof(MPI_Aint));
  name.integers(NAMED(OFFSET), sizeof(MPI_Offset));
  name.integers(NAMED(COUNT), sizeof(MPI_Count));
  name.integers(NAMED(INTEGER), 4);
  name.integers(NAMED(INTEGER1), 1);
  name.integers(NAMED(INTEGER2), 2);
  name.integers(NAMED(INTEGER4), 4);
  name.integers(NAMED(INTEGER8), 8);
  name.integers(NAMED(INTEGER16), 16);
  name.floats(NAMED(FLOAT), 4);
  name.floats(NAMED(DOUBLE), 8);
  name.floats(NAMED(LONG_DOUBLE), sizeof(long double));
  name.floats(NAMED(REAL), 4);
  name.floats(NAMED(DOUBLE_PRECISION), 8);
  name.element(NAMED(REAL2), Basic::kFloat, 2, DType::kFloat16);
#ifdef MPI_X_C_FLOAT16
  name.element(MPI_X_C_FLOAT16, "MPIX_C_FLOAT16", Basic::kFloat, 2, DType::kFloat16);
#endif
#ifdef MPI_X_BFLOAT16
  name.element(MPI_X_BFLOAT16, "MPIX_BFLOAT16", Basic::kFloat, 2, DType::kBfloat16);
#endif
  name.floats(NAMED(REAL4), 4);
  name.floats(NAMED(REAL8), 8);
  name.element(NAMED(REAL16), Basic::kFloat, 16);
  // In MPICH's ABI and the standard's C_COMPLEX is the same handle, and its name.
  for (const auto& [handle, text, bytes] : {std::tuple{NAMED(C_FLOAT_COMPLEX), 8},
                                            {NAMED(C_COMPLEX), 8},
                                            {NAMED(C_DOUBLE_COMPLEX), 16},
                                            {NAMED(C_LONG_DOUBLE_COMPLEX), 32},
                                            {NAMED(CXX_FLOAT_COMPLEX), 8},
                                            {NAMED(CXX_DOUBLE_COMPLEX), 16},
                                            {NAMED(CXX_LONG_DOUBLE_COMPLEX), 32},
                                            {NAMED(COMPLEX), 8},
                                            {NAMED(DOUBLE_COMPLEX), 16},
                                            {NAMED(COMPLEX4), 4},
                                            {NAMED(COMPLEX8), 8},
                                            {NAMED(COMPLEX16), 16},
                                            {NAMED(COMPLEX32), 32}}) {
    name.element(handle, text, Basic::kComplex, static_cast<size_t>(bytes));
  }
  // One byte, 0 or 1.
  name.element(NAMED(C_BOOL), Basic::kLogical, 1, DType::kBool);
  name.element(NAMED(CXX_BOOL), Basic::kLogical, 1, DType::kBool);
  // Fortran's logicals are integers to the engine: any value but 0 is true, and results are 0 or 1.
  name.element(NAMED(LOGICAL), Basic::kLogical, 4, DType::kInt32);
  name.element(NAMED(LOGICAL1), Basic::kLogical, 1, DType::kInt8);
  name.element(NAMED(LOGICAL2), Basic::kLogical, 2, DType::kInt16);
  name.element(NAMED(LOGICAL4), Basic::kLogical, 4, DType::kInt32);
  name.element(NAMED(LOGICAL8), Basic::kLogical, 8, DType::kInt64);
  name.element(NAMED(LOGICAL16), Basic::kLogical, 16);
#ifdef MPI_2COMPLEX
  name.element(NAMED(2COMPLEX), Basic::kNone, 16);
  name.element(NAMED(2DOUBLE_COMPLEX), Basic::kNone, 32);
#endif
#ifdef MPI_LB
  name.element(NAMED(LB), Basic::kNone, 0);
  name.element(NAMED(UB), Basic::kNone, 0);
#endif
  // MPI_MINLOC and MPI_MAXLOC are for these alone.
  name.pair<float, int>(NAMED(FLOAT_INT), MPI_FLOAT, MPI_INT);
  name.pair<double, int>(NAMED(DOUBLE_INT), MPI_DOUBLE, MPI_INT);
  name.pair<long, int>(NAMED(LONG_INT), MPI_LONG, MPI_INT);
  name.pair<int, int>(NAMED(2INT), MPI_INT, MPI_INT);
  name.pair<short, int>(NAMED(SHORT_INT), MPI_SHORT, MPI_INT);
  name.pair<long double, int>(NAMED(LONG_DOUBLE_INT), MPI_LONG_DOUBLE, MPI_INT);
  name.pair<float, float>(NAMED(2REAL), MPI_REAL, MPI_REAL);
  name.pair<double, double>(NAMED(2DOUBLE_PRECISION), MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION);
  name.pair<int, int>(NAMED(2INTEGER), MPI_INTEGER, MPI_INTEGER);
  return order;
}

// The last four are none of the engine's: collectives run them as Op::kUser, which calls fold_packed().
NamedOps name_ops(Table<Op>& table) {
  NamedOps order;
  const auto name = [&](MPI_Op handle, std::optional<rondo::Op> engine = std::nullopt) {
    auto op = std::make_shared<Op>();
    op->engine = engine;
    op->place = static_cast<uint8_t>(order.size());
    order.push_back(op);
    table.name(handle, std::move(op));
  };
  name(MPI_SUM, rondo::Op::kSum);
  name(MPI_PROD, rondo::Op::kProduct);
  name(MPI_MIN, rondo::Op::kMin);
  name(MPI_MAX, rondo::Op::kMax);
  name(MPI_LAND, rondo::Op::kLogicalAnd);
  name(MPI_LOR, rondo::Op::kLogicalOr);
  name(MPI_LXOR, rondo::Op::kLogicalXor);
  name(MPI_BAND, rondo::Op::kBitAnd);
  name(MPI_BOR, rondo::Op::kBitOr);
  name(MPI_BXOR, rondo::Op::kBitXor);
  name(MPI_MINLOC);
  name(MPI_MAXLOC);
  name(MPI_REPLACE);
  name(MPI_NO_OP);
  return order;
}

}  // namespace rondo_mpi
