// Compiled twice: CODEC_UNIT names the result.
#include "tests/kernels/codec_unit.h"

#include "kernels/element.h"

namespace rondo {
namespace {

template <class Format>
void encode_all(const float* from, uint16_t* to, size_t count) {
  for (size_t i = 0; i < count; i += Format::kWidth) {
    typename Format::Accumulator value;
    __builtin_memcpy(&value, from + i, sizeof(value));
    Format::store(reinterpret_cast<Byte*>(to + i), value);
  }
}

template <class Format>
void decode_all(const uint16_t* from, float* to, size_t count) {
  for (size_t i = 0; i < count; i += Format::kWidth) {
    const typename Format::Accumulator value = Format::load(reinterpret_cast<const Byte*>(from + i));
    __builtin_memcpy(to + i, &value, sizeof(value));
  }
}

void encode(DType dtype, const float* from, uint16_t* to, size_t count) {
  return dtype == DType::kFloat16 ? encode_all<Float16>(from, to, count) : encode_all<Bfloat16>(from, to, count);
}

void decode(DType dtype, const uint16_t* from, float* to, size_t count) {
  return dtype == DType::kFloat16 ? decode_all<Float16>(from, to, count) : decode_all<Bfloat16>(from, to, count);
}

}  // namespace

constexpr CodecUnit CODEC_UNIT = {encode, decode};

}  // namespace rondo
