#pragma once

#include <cstddef>
#include <cstdint>

#include "rondo/dtype.h"

namespace rondo {

// The kernels' own conversions of 16-bit floats, of the unit compiled for one instruction set. count: a multiple of 16.
struct CodecUnit {
  void (*encode)(DType dtype, const float* from, uint16_t* to, size_t count);
  void (*decode)(DType dtype, const uint16_t* from, float* to, size_t count);
};

extern const CodecUnit kBaselineCodecs;
extern const CodecUnit kAvx2Codecs;  // what AVX-512 uses too

}  // namespace rondo
