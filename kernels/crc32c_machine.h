#pragma once

// Private to crc32c*.cc.

#include <cstddef>
#include <cstdint>

namespace rondo {

// The register behind these bytes; it begins as all ones, and is inverted at the end.
using Crc32cUpdate = uint32_t (*)(uint32_t state, const unsigned char* data, size_t bytes);

// By the processor's instruction; nullptr: it has none. crc32c_x86.cc or crc32c_generic.cc, picked by BUILD.
Crc32cUpdate crc32c_instruction();

}  // namespace rondo
