#include "bench/loop/contents.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/loop/element.h"

namespace rondo::bench {
namespace {

// Calls visit(buffer bytes, tile bytes, elements) for each run of the region that one tile covers without wrapping.
template <typename Byte, typename Visit>
void for_each_run(Byte* buffer, DType dtype, const Region& region, Visit visit) {
  const size_t width = dtype_bytes(dtype);
  uint64_t place = region.phase % kTilePeriod;
  for (uint64_t done = 0; done < region.count;) {
    const uint64_t run = std::min(kTilePeriod - place, region.count - done);
    visit(buffer + (region.offset + done) * width, region.tile.data() + place * width, run);
    done += run;
    place = 0;
  }
}

// Not for NaN: a comparison with NaN is false, so it counts as wrong.
bool within(DType dtype, const std::byte* actual, const std::byte* expected, double tolerance) {
  const double wanted = load_value(dtype, expected);
  return std::fabs(load_value(dtype, actual) - wanted) <= tolerance * std::fabs(wanted);
}

// Element by element, after a comparison of the whole run has failed.
uint64_t wrong_in_run(const std::byte* actual, const std::byte* expected, uint64_t run, DType dtype, double tolerance) {
  const size_t width = dtype_bytes(dtype);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < run; ++i, actual += width, expected += width) {
    if (std::memcmp(actual, expected, width) == 0) continue;
    const bool close = tolerance > 0 && dtype_is_float(dtype) && within(dtype, actual, expected, tolerance);
    if (!close) ++wrong;
  }
  return wrong;
}

}  // namespace

void write_region(std::byte* buffer, DType dtype, const Region& region) {
  const size_t width = dtype_bytes(dtype);
  for_each_run(buffer, dtype, region,
               [&](std::byte* to, const std::byte* from, uint64_t run) { std::memcpy(to, from, run * width); });
}

uint64_t count_wrong(const std::byte* buffer, DType dtype, const Region& region, double tolerance) {
  const size_t width = dtype_bytes(dtype);
  uint64_t wrong = 0;
  for_each_run(buffer, dtype, region, [&](const std::byte* actual, const std::byte* expected, uint64_t run) {
    if (std::memcmp(actual, expected, run * width) == 0) return;  // nearly always: as fast as memory
    wrong += wrong_in_run(actual, expected, run, dtype, tolerance);
  });
  return wrong;
}

// 0xa5 bytes: a small negative float, a large negative integer, and not 0 or 1 for bool.
void poison(std::span<std::byte> memory) { std::fill(memory.begin(), memory.end(), std::byte{0xa5}); }

}  // namespace rondo::bench
