#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ring/base/hash.h"
#include "ring/base/types.h"
#include "ring/engine/call/collective_call.h"
#include "ring/engine/call/fusion.h"
#include "ring/plan/layout.h"
#include "rondo/communicator.h"

namespace rondo {

// What a call is, without its memory: what ranks compare, and what messages show.
struct CallSummary {
  Collective collective = Collective::kBarrier;
  bool uneven = false;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  WireFormat wire = WireFormat::kNone;
  int root = -1;
  uint64_t count = 0;          // elements of the call (of a block where there are blocks); own count where uneven
  uint64_t shared_counts = 0;  // hash of the uneven counts that every rank must know; 0 if each pair knows its own.
                               // An operation of a list: the list's
  Algorithm algorithm = Algorithm::kAuto;  // resolved when the call is submitted
  bool registered_first = false;           // by it only where the buffers of some rank are not registered
  // An operation of a list of all_reduces (fusion.h): the `part`th of `parts`, from 1. Shared by the operations and
  // those who remember them.
  std::shared_ptr<const TensorList> list;
  uint32_t part = 0, parts = 0;
  // Of a call on device memory: the `piece`th of `pieces`, from 1; pieces 0: host memory. attaches: attach_device().
  uint32_t piece = 0, pieces = 0;
  bool attaches = false;
};

// What ranks compare: of one call among those of its communicator, from what all its likes have in common.
constexpr uint64_t fingerprint_of(uint64_t kind, uint64_t sequence) { return mix64(kind ^ sequence); }

// A call after its arguments have been found good. Ranks are those of the communicator.
struct CheckedCall : CallSummary {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<Extent> input_blocks, output_blocks;  // of collectives with a block a rank; else empty
  double scalar = 1.0;
  std::chrono::milliseconds timeout{0};  // 0: the configured one

  // Bytes of the whole operation. 0 where ranks know only their own counts.
  uint64_t total_bytes(int world) const;
  // The same as they travel: what the choice of an algorithm depends on.
  uint64_t travelling_bytes(int world) const;
  // Elements of the largest block of the whole operation, cut as even_blocks() does where it has no blocks of its own;
  // nullopt where ranks know only their own counts.
  std::optional<uint64_t> largest_block(uint32_t chunks, uint64_t granule) const;
};

// Throws Exception(kInvalid) that names the argument, its value and this rank. No side effects.
CheckedCall check_call(const CollectiveCall& call, int rank, int world);

// "all_reduce(count=8, float32, sum, ring)"
std::string describe_call(const CallSummary& call);

// Bytes of `count` elements. Throws Exception(kInvalid) if the product exceeds 64 bits or the dtype is unknown.
uint64_t checked_bytes(const char* call, int rank, uint64_t count, DType dtype);

}  // namespace rondo
