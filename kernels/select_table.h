#pragma once

#include <cstddef>
#include <cstdint>

namespace rondo {

// One call of the selection (select.h). Pointers need no alignment.
struct SelectCall {
  const void* input;     // count float32
  const void* residual;  // likewise; nullptr: none
  size_t count;
  uint32_t least;     // magnitude, as bits
  uint32_t first;     // number of the first element
  uint32_t* indices;  // room for count; ascending
  float* values;      // likewise
};
struct Selected {
  size_t count;
  uint32_t largest;  // magnitude of all elements, as bits
};

// The loops of one instruction set; RONDO_KERNEL_SET of BUILD, as in kernel_table.h.
struct SelectRow {
  Selected (*sum)(const SelectCall& call);    // with a residual
  Selected (*plain)(const SelectCall& call);  // without
};
namespace baseline {
extern const SelectRow kSelect;
}
namespace avx2 {  // x86 only
extern const SelectRow kSelect;
}
namespace avx512 {  // x86 only
extern const SelectRow kSelect;
}

}  // namespace rondo
