#include "kernels/pack.h"

#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/machine.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

const PackKernels& kernels_of(InstructionSet set, DType dtype) {
  RONDO_CHECK(dtype == DType::kBfloat16 || dtype == DType::kFloat32, "a type that is not packed");
  const KernelTable& table = available_kernel_table(set);
  return dtype == DType::kBfloat16 ? *table.pack_bfloat16 : *table.pack_float32;
}

}  // namespace

// No arithmetic on floats: the mode of the thread does not matter.
size_t pack(DType dtype, const void* values, uint64_t count, void* to, InstructionSet set) {
  const size_t blocks = count / kPackedBlock, done = blocks * kPackedBlock * dtype_bytes(dtype);
  const size_t rest = count * dtype_bytes(dtype) - done;
  const size_t bytes = kernels_of(set, dtype).pack({values, to, blocks});
  if (rest > 0) std::memcpy(static_cast<std::byte*>(to) + bytes, static_cast<const std::byte*>(values) + done, rest);
  return bytes + rest;
}

// The bytes may be a peer's: lengths are compared before the kernel reads, and it must use up all of them.
bool unpack(DType dtype, const void* from, size_t bytes, uint64_t count, void* values, InstructionSet set) {
  const size_t blocks = count / kPackedBlock, done = blocks * kPackedBlock * dtype_bytes(dtype);
  const size_t rest = count * dtype_bytes(dtype) - done;
  if (bytes < rest) return false;
  if (kernels_of(set, dtype).unpack({from, bytes - rest, values, blocks}) != bytes - rest) return false;
  const std::byte* last = static_cast<const std::byte*>(from) + bytes - rest;
  if (rest > 0) std::memcpy(static_cast<std::byte*>(values) + done, last, rest);
  return true;
}

}  // namespace rondo
