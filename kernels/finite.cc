#include "kernels/finite.h"

#include <algorithm>
#include <cstring>

namespace rondo {
namespace {

// Elements looked at together, without a branch, by loops that compilers vectorise.
constexpr uint64_t kBlock = 1024;

// The exponent's bits are all ones: NaN or infinite.
template <typename Word, Word kExponent>
bool not_finite(Word word) {
  return (word & kExponent) == kExponent;
}

// Block by block through a copy, which aligns the elements; most buffers have nothing to find, so a block is looked at
// as a whole first.
template <typename Word, Word kExponent>
std::optional<uint64_t> search(const unsigned char* data, uint64_t count) {
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t size = std::min(kBlock, count - begin);
    Word words[kBlock];
    std::memcpy(words, data + begin * sizeof(Word), size * sizeof(Word));
    unsigned found = 0;
    for (uint64_t i = 0; i < size; ++i) found |= not_finite<Word, kExponent>(words[i]) ? 1u : 0u;
    if (found == 0) continue;
    const Word* first = std::find_if(words, words + size, not_finite<Word, kExponent>);
    return begin + static_cast<uint64_t>(first - words);
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> first_not_finite(const void* data, uint64_t count, DType dtype) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  switch (dtype) {
    case DType::kFloat16:
      return search<uint16_t, 0x7c00>(bytes, count);
    case DType::kBfloat16:
      return search<uint16_t, 0x7f80>(bytes, count);
    case DType::kFloat32:
      return search<uint32_t, 0x7f800000>(bytes, count);
    case DType::kFloat64:
      return search<uint64_t, 0x7ff0000000000000>(bytes, count);
    case DType::kFloat8E4M3:  // no infinity: only all ones is NaN
      return search<uint8_t, 0x7f>(bytes, count);
    case DType::kFloat8E5M2:
      return search<uint8_t, 0x7c>(bytes, count);
    default:
      return std::nullopt;
  }
}

}  // namespace rondo
