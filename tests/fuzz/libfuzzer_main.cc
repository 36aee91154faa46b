// The entry that libFuzzer calls; the main is in its library (-fsanitize=fuzzer).
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rondo::fuzz::try_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
