#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
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
  uint64_t bits;
  constexpr NumberBits(double number) : bits(std::bit_cast<uint64_t>(number)) {}
  constexpr operator double() const { return std::bit_cast<double>(bits); }
};

// A call without its buffers: the key of prepared calls and the input of the fingerprint. Calls with equal
// fields differ in their buffers only. It is compared and hashed as bytes, so it has no gaps, and a new field
// is covered without further code.
struct CallFields {
  uint64_t count = 0;          // elements of the call (of a block where there are blocks); own count where uneven
  uint64_t shared_counts = 0;  // hash of the uneven counts that every rank must know; 0 if each pair knows its own.
                               // An operation of a list: the list's
  NumberBits scalar = 1.0;
  std::chrono::milliseconds timeout{0};  // 0: the configured one
  int root = -1;
  uint32_t part = 0, parts = 0;    // of an operation of a list (fusion.h): the `part`th of `parts`, from 1
  uint32_t piece = 0, pieces = 0;  // of a call on device memory, likewise; pieces 0: host memory
  uint32_t user_bytes = 0;         // UserOp::element_bytes; 0: it is another op. The dtype is kUint8 then
  Purpose purpose = Purpose::kProgram;
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  WireFormat wire = WireFormat::kNone;
  Algorithm asked = Algorithm::kAuto;      // by the call's options
  Algorithm algorithm = Algorithm::kAuto;  // by Router::ask(), once it is prepared: what ranks agree on, and settings
  bool registered_first = false;           // likewise: `algorithm` only where some rank's buffers are not registered
  bool uneven = false;
  bool any_op = false;      // `op` is this rank's own
  bool in_order = false;    // UserOp::commutative is not set
  uint8_t padding[4] = {};  // up to a whole word

  // The fields on which ranks must agree; a difference is a mismatch. Cleared are: the op, where each rank
  // folds by its own; uneven counts, which each pair compares slice by slice; the scalar and the timeout, which
  // are each rank's own.
  CallFields agreed() const {
    CallFields fields = *this;
    if (any_op) fields.op = {};
    if (uneven) fields.count = 0;
    fields.scalar = 0.0;
    fields.timeout = {};
    return fields;
  }
  bool operator==(const CallFields& other) const { return std::memcmp(this, &other, sizeof other) == 0; }
};
static_assert(std::has_unique_object_representations_v<CallFields>);
static_assert(sizeof(CallFields) % sizeof(uint64_t) == 0);

// The fields of a call as the program made it, unchecked, with those that its collective does not use.
inline CallFields fields_of(const Call& call) {
  return {.count = call.count,
          .scalar = call.options.scalar,
          .timeout = call.options.timeout,
          .root = call.root,
          .user_bytes = call.options.user.element_bytes,
          .purpose = call.options.purpose,
          .collective = call.collective,
          .dtype = call.dtype,
          .op = call.op,
          .wire = call.options.wire.format,
          .asked = call.options.algorithm,
          .uneven = call.uneven,
          .any_op = call.options.any_op,
          .in_order = !call.options.user.commutative};
}

// What one call has beside its fields: its memory, and the program's function. The memory belongs to the
// caller, and must stay valid until the operation is done.
struct CallBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  WireOptions wire = {};  // its residual is memory of the call
  UserOp user = {};       // of op kUser
};
inline CallBuffers buffers_of(const Call& call) {
  return {static_cast<const std::byte*>(call.input), static_cast<std::byte*>(call.output), call.options.wire,
          call.options.user};
}

// A call whose arguments are good, without its buffers. Ranks are those of the communicator. Copies share the
// list and the blocks, which never change.
struct CheckedCall : CallFields {
  std::shared_ptr<const TensorList> list;  // of `part`
  std::shared_ptr<const Blocks> blocks;    // of collectives with a block a rank; else null

  size_t element_bytes() const { return user_bytes > 0 ? user_bytes : dtype_bytes(dtype); }
  bool coded() const { return wire != WireFormat::kNone; }
  bool scales_at_source() const { return collective_reduces(collective) && op == Op::kPremulSum; }

  // Bytes of the whole operation. 0 where ranks know only their own counts.
  uint64_t total_bytes(int world) const;
  // total_bytes() as they travel, packed ones at most: what the choice of an algorithm depends on.
  uint64_t travelling_bytes(int world) const;
  // Elements of the largest block of the whole operation, cut as even_blocks() does where it has no blocks of its own;
  // nullopt where ranks know only their own counts.
  std::optional<uint64_t> largest_block(uint32_t block_count, uint64_t granule) const;
};

// Hash of the communicator and of the agreed fields: equal calls have equal kinds. The op is its note, which is
// not compared with the hash (ring/base/hash.h): ranks whose ops may differ still learn each other's.
uint64_t kind_of(uint64_t communicator, const CallFields& call);
// The fingerprint of one call: its kind mixed with its number. Every post and every slice carries it, so two
// ranks that are at different calls, or at a different number of equal calls, never use each other's bytes.
constexpr uint64_t fingerprint_of(uint64_t kind, uint64_t sequence) {
  return noted_fingerprint(mix64(agreed_bits(kind) ^ sequence), fingerprint_note(kind));
}

// Checks arguments and buffers. Throws Exception(kInvalid) that names the argument, its value and this rank. It
// has no side effects: a caller's mistake leaves the communicator usable.
CheckedCall check_call(const Call& call, int rank, int world);

// "all_reduce(count=8, float32, sum, ring)"
std::string describe_call(const CheckedCall& call);

}  // namespace rondo
