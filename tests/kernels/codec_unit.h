#pragma once

#include <cstddef>

#include "rondo/dtype.h"

namespace rondo {

// The kernels' own conversions between float32 and the floats of 16 and 8 bits, of the unit compiled for one
// instruction set. count: a multiple of 16.
struct CodecUnit {
  void (*encode)(DType dtype, const float* from, void* to, size_t count);
  void (*decode)(DType dtype, const void* from, float* to, size_t count);
};

extern const CodecUnit kBaselineCodecs;
extern const CodecUnit kAvx2Codecs;  // what AVX-512 uses too

}  // namespace rondo
