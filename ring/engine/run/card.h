#pragma once

#include <cstdint>

#include "transport/shared_memory.h"

namespace rondo {

// Where a rank's buffers lie: in which windows (id 0: in none), and at which addresses of its process. A buffer that
// no other rank touches has neither.
struct BufferPlaces {
  WindowPlace input, output;
  uint64_t input_address = 0, output_address = 0;
  bool operator==(const BufferPlaces&) const = default;
};

// What a rank tells all others of one call.
struct CallCard {
  BufferPlaces places;
  uint64_t unreadable = 0;  // 1: this rank could not read the others' buffers
};

}  // namespace rondo
