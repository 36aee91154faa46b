#include "kernels/wire_codec.h"

#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/machine.h"
#include "ring/base/check.h"

namespace rondo {
namespace {

const WireKernels& kernels_of(InstructionSet set, WireFormat format) {
  const WireKernels& kernels = available_kernel_table(set).wire->formats[static_cast<size_t>(format)];
  RONDO_CHECK(kernels.encode != nullptr, "a wire format that codes nothing");
  return kernels;
}
// The kernels for elements in memory. The wire format float16 keeps elements in order, so its kernels serve.
const WireKernels& kernels_of(InstructionSet set, DType type) {
  RONDO_CHECK(type == DType::kFloat16 || type == DType::kBfloat16, "no type of 16 bits that is widened");
  const WireRow& wire = *available_kernel_table(set).wire;
  return type == DType::kBfloat16 ? wire.bfloat16_in_order : wire.formats[static_cast<size_t>(WireFormat::kFloat16)];
}

// An infinity or a NaN less itself is NaN.
bool finite(float value) { return value - value == 0.0f; }

// The largest magnitude that a format without scales rounds to a finite number; 65520 and 0x1.ffp127 round to infinity.
bool fits(WireFormat format, float value) {
  const float magnitude = value < 0 ? -value : value;
  if (format == WireFormat::kFloat16) return magnitude < 65520.0f;
  if (format == WireFormat::kBfloat16) return magnitude < 0x1.ffp127f;
  return finite(value);
}

// The kernel names a block; this finds the element in it. Only after a failure, so its speed does not matter.
uint64_t first_unfit(WireFormat format, const unsigned char* values, uint64_t from, uint64_t count) {
  for (uint64_t i = from; i < count; ++i) {
    float value;
    std::memcpy(&value, values + i * sizeof(float), sizeof(float));
    if (!fits(format, value)) return i;
  }
  return count;
}

}  // namespace

// Whole blocks from where they lie; the last one is filled up with zeros first, since the kernels know whole blocks
// only.
uint64_t wire_encode(WireFormat format, const void* values, uint64_t count, void* to, const WireRounding& rounding,
                     InstructionSet set) {
  const WireKernels& kernels = kernels_of(set, format);
  const auto* from = static_cast<const unsigned char*>(values);
  auto* coded = static_cast<unsigned char*>(to);
  const DefaultFloatMode mode;
  const size_t blocks = count / kWireBlock;
  uint64_t unfit = count;
  if (blocks > 0) {
    const size_t bad = kernels.encode({from, coded, blocks, rounding.stochastic, rounding.seed, rounding.first});
    if (bad < blocks) unfit = first_unfit(format, from, bad * kWireBlock, count);
  }
  const uint64_t done = blocks * kWireBlock;
  if (done == count) return unfit;
  float rest[kWireBlock] = {};
  std::memcpy(rest, from + done * sizeof(float), (count - done) * sizeof(float));
  const size_t bad = kernels.encode(
      {rest, coded + blocks * wire_block_bytes(format), 1, rounding.stochastic, rounding.seed, rounding.first + done});
  return bad == 0 && unfit == count ? first_unfit(format, from, done, count) : unfit;
}

// The bytes may be a peer's. Every code has a value, so there is nothing to refuse.
void wire_decode(WireFormat format, const void* from, uint64_t count, void* values, InstructionSet set) {
  const WireKernels& kernels = kernels_of(set, format);
  const auto* coded = static_cast<const unsigned char*>(from);
  auto* to = static_cast<unsigned char*>(values);
  const DefaultFloatMode mode;
  const size_t blocks = count / kWireBlock;
  if (blocks > 0) kernels.decode({coded, to, blocks});
  const uint64_t done = blocks * kWireBlock;
  if (done == count) return;
  float rest[kWireBlock];
  kernels.decode({coded + blocks * wire_block_bytes(format), rest, 1});
  std::memcpy(to + done * sizeof(float), rest, (count - done) * sizeof(float));
}

// Encodes all of it even if an element does not fit: the caller reports that one, and the others stay right.
uint64_t narrow(DType type, const float* values, uint64_t count, void* to, InstructionSet set) {
  const WireKernels& kernels = kernels_of(set, type);
  const DefaultFloatMode mode;
  const size_t blocks = count / kWireBlock, done = blocks * kWireBlock;
  bool fit = kernels.encode({values, to, blocks, false, 0, 0}) == blocks;
  if (done < count) {
    float rest[kWireBlock] = {};
    uint16_t narrowed[kWireBlock];
    std::memcpy(rest, values + done, (count - done) * sizeof(float));
    fit = kernels.encode({rest, narrowed, 1, false, 0, 0}) == 1 && fit;
    std::memcpy(static_cast<uint16_t*>(to) + done, narrowed, (count - done) * sizeof(uint16_t));
  }
  if (fit) return count;
  const WireFormat format = type == DType::kFloat16 ? WireFormat::kFloat16 : WireFormat::kBfloat16;
  return first_unfit(format, reinterpret_cast<const unsigned char*>(values), 0, count);
}

void widen(DType type, const void* from, uint64_t count, float* values, InstructionSet set) {
  const WireKernels& kernels = kernels_of(set, type);
  const DefaultFloatMode mode;
  const size_t blocks = count / kWireBlock, done = blocks * kWireBlock;
  kernels.decode({from, values, blocks});
  if (done == count) return;
  uint16_t rest[kWireBlock] = {};
  float widened[kWireBlock];
  std::memcpy(rest, static_cast<const uint16_t*>(from) + done, (count - done) * sizeof(uint16_t));
  kernels.decode({rest, widened, 1});
  std::memcpy(values + done, widened, (count - done) * sizeof(float));
}

}  // namespace rondo
