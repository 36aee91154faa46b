#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "ring/base/hash.h"
#include "ring/base/types.h"
#include "ring/engine/call/fusion.h"
#include "ring/plan/layout.h"
#include "rondo/communicator.h"

namespace rondo {

// A number that is compared by its bits: 0.0 and -0.0 are two, and a NaN is equal to itself.
struct NumberBits {
  double value = 0;
  NumberBits(double number) : value(number) {}
  operator double() const { return value; }
  bool operator==(const NumberBits& other) const {
    return std::bit_cast<uint64_t>(value) == std::bit_cast<uint64_t>(other.value);
  }
};

// A call without its buffers. Calls with equal fields are alike but for these; visit_fields() says on which fields
// ranks must agree.
struct CallFields {
  Purpose purpose = Purpose::kProgram;
  Collective collective = Collective::kBarrier;
  bool uneven = false;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  bool any_op = false;  // `op` is this rank's own
  WireFormat wire = WireFormat::kNone;
  Algorithm asked = Algorithm::kAuto;  // by the call's options
  int root = -1;
  uint64_t count = 0;              // elements of the call (of a block where there are blocks); own count where uneven
  uint64_t shared_counts = 0;      // hash of the uneven counts that every rank must know; 0 if each pair knows its own.
                                   // An operation of a list: the list's
  uint32_t part = 0, parts = 0;    // of an operation of a list (fusion.h): the `part`th of `parts`, from 1
  uint32_t piece = 0, pieces = 0;  // of a call on device memory, likewise; pieces 0: host memory
  uint32_t user_bytes = 0;         // UserOp::element_bytes; 0: it is another op. The dtype is kUint8 then
  bool in_order = false;           // UserOp::commutative is not set
  NumberBits scalar = 1.0;
  std::chrono::milliseconds timeout{0};  // 0: the configured one

  bool operator==(const CallFields&) const = default;
};

// visit(mark, field) for each of them. kAgreed: equal on all ranks, else the call is a mismatch. A field that is not
// among the names does not compile.
enum class Mark : uint8_t { kAgreed, kLocal };
template <typename Fields, typename Visit>
void visit_fields(Fields& fields, const Visit& visit) {
  std::conditional_t<std::is_const_v<Fields>, const CallFields, CallFields>& own = fields;
  auto& [purpose, collective, uneven, dtype, op, any_op, wire, asked, root, count, shared_counts, part, parts, piece,
         pieces, user_bytes, in_order, scalar, timeout] = own;
  visit(Mark::kAgreed, purpose);
  visit(Mark::kAgreed, collective);
  visit(Mark::kAgreed, uneven);
  visit(Mark::kAgreed, dtype);
  visit(any_op ? Mark::kLocal : Mark::kAgreed, op);  // each rank folds by its own; nothing else follows from it
  visit(Mark::kAgreed, any_op);
  visit(Mark::kAgreed, wire);
  visit(Mark::kAgreed, asked);
  visit(Mark::kAgreed, root);
  visit(uneven ? Mark::kLocal : Mark::kAgreed, count);  // of uneven calls each pair compares its own, slice by slice
  visit(Mark::kAgreed, shared_counts);
  visit(Mark::kAgreed, part);
  visit(Mark::kAgreed, parts);
  visit(Mark::kAgreed, piece);
  visit(Mark::kAgreed, pieces);
  visit(Mark::kAgreed, user_bytes);
  visit(Mark::kAgreed, in_order);
  visit(Mark::kLocal, scalar);
  visit(Mark::kLocal, timeout);
}

// A call after its arguments have been found good. Ranks are those of the communicator. A copy shares what it points
// to.
struct CheckedCall : CallFields {
  Algorithm algorithm = Algorithm::kAuto;  // by Router::ask()
  bool registered_first = false;           // by it only where the buffers of some rank are not registered
  std::shared_ptr<const TensorList> list;  // of `part`
  std::shared_ptr<const Blocks> blocks;    // of collectives with a block a rank; else null
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  UserOp user;  // of op kUser

  size_t element_bytes() const { return user_bytes > 0 ? user_bytes : dtype_bytes(dtype); }
  bool coded() const { return wire != WireFormat::kNone; }
  bool scales_at_source() const { return collective_reduces(collective) && op == Op::kPremulSum; }

  // Bytes of the whole operation. 0 where ranks know only their own counts.
  uint64_t total_bytes(int world) const;
  // total_bytes() as they travel, packed ones at most: what the choice of an algorithm depends on.
  uint64_t travelling_bytes(int world) const;
  // Elements of the largest block of the whole operation, cut as even_blocks() does where it has no blocks of its own;
  // nullopt where ranks know only their own counts.
  std::optional<uint64_t> largest_block(uint32_t chunks, uint64_t granule) const;
};

// A hash of the communicator and of the fields on which ranks must agree; the op is the note.
uint64_t kind_of(uint64_t communicator, const CheckedCall& call);
// What ranks compare: of one call among those of its communicator, from what all its likes have in common.
constexpr uint64_t fingerprint_of(uint64_t kind, uint64_t sequence) {
  return noted_fingerprint(mix64(agreed_bits(kind) ^ sequence), fingerprint_note(kind));
}

// Throws Exception(kInvalid) that names the argument, its value and this rank. No side effects.
CheckedCall check_call(const Call& call, int rank, int world);

// "all_reduce(count=8, float32, sum, ring)"
std::string describe_call(const CheckedCall& call);

}  // namespace rondo
