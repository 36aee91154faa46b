// Compiled twice: CODEC_UNIT names the result.
#include "tests/kernels/codec_unit.h"

#include "kernels/element.h"

namespace rondo {
namespace {

// Where an accumulator holds element `index` of its elements: in order, but for pairs of even and odd ones.
template <class Format>
size_t place(size_t index) {
  return Format::kWidth == 16 ? index / 2 + index % 2 * 8 : index;
}

template <class Format>
void encode_all(const float* from, void* to, size_t count) {
  for (size_t i = 0; i < count; i += Format::kWidth) {
    float placed[Format::kWidth];
    for (size_t at = 0; at < Format::kWidth; ++at) placed[place<Format>(at)] = from[i + at];
    typename Format::Accumulator value;
    __builtin_memcpy(&value, placed, sizeof(value));
    Format::store(static_cast<Byte*>(to) + i * Format::kBytes, value);
  }
}

template <class Format>
void decode_all(const void* from, float* to, size_t count) {
  for (size_t i = 0; i < count; i += Format::kWidth) {
    const typename Format::Accumulator value = Format::load(static_cast<const Byte*>(from) + i * Format::kBytes);
    float placed[Format::kWidth];
    __builtin_memcpy(placed, &value, sizeof(value));
    for (size_t at = 0; at < Format::kWidth; ++at) to[i + at] = placed[place<Format>(at)];
  }
}

void encode(DType dtype, const float* from, void* to, size_t count) {
  if (dtype == DType::kFloat16) return encode_all<Float16>(from, to, count);
  if (dtype == DType::kBfloat16) return encode_all<Bfloat16>(from, to, count);
  return dtype == DType::kFloat8E4M3 ? encode_all<Float8E4M3>(from, to, count)
                                     : encode_all<Float8E5M2>(from, to, count);
}

void decode(DType dtype, const void* from, float* to, size_t count) {
  if (dtype == DType::kFloat16) return decode_all<Float16>(from, to, count);
  if (dtype == DType::kBfloat16) return decode_all<Bfloat16>(from, to, count);
  return dtype == DType::kFloat8E4M3 ? decode_all<Float8E4M3>(from, to, count)
                                     : decode_all<Float8E5M2>(from, to, count);
}

}  // namespace

constexpr CodecUnit CODEC_UNIT = {encode, decode};

}  // namespace rondo
