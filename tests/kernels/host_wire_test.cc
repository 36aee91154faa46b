// The codings of GPUs (kernels/device/wire_pass.h), compiled for this processor, give the bytes of wire_encode() and
// the values of wire_decode(): every format, length and alignment, also of what is not finite.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/device/host_wire.h"
#include "kernels/wire_codec.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kSeed = 20261124;
constexpr size_t kCounts[] = {0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 1000};
constexpr unsigned char kGuard = 0xa5;

// Of every size: 2^-140 .. 2^20, and what no format can hold.
std::vector<float> random_values(Random& random, size_t count, bool finite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f, -0.0f, 65519.0f, 65520.0f, -1e30f, kInfinity, std::nanf("")};
  const int least = random.chance(20) ? -140 : -12;
  std::vector<float> values(count);
  for (float& value : values) {
    const double fraction = 1 + static_cast<double>(random.below(1 << 23)) / (1 << 23);
    value = static_cast<float>(std::ldexp(fraction, least + static_cast<int>(random.below(24))));
    if (random.chance(50)) value = -value;
    if (random.chance(3)) value = special[random.below(finite ? 3 : 7)];
  }
  return values;
}

void check(Random& random, WireFormat format, size_t count, bool stochastic, size_t offset) {
  CAPTURE(std::string(wire_format_name(format)));
  CAPTURE(count);
  const std::vector<float> values = random_values(random, count, random.chance(50));
  const WireRounding rounding{stochastic, random.next(), random.next()};
  const size_t bytes = wire_bytes(format, count);
  std::vector<unsigned char> wanted(bytes + 16, kGuard), coded(wanted), source(4 * count + 16, kGuard);
  if (count > 0) std::memcpy(source.data() + offset, values.data(), 4 * count);
  const uint64_t unfit = wire_encode(format, values.data(), count, wanted.data() + offset, rounding);

  uint64_t found = count;
  DeviceWire wire = {source.data() + offset, coded.data() + offset, count,      &found,
                     rounding.seed,          rounding.first,        stochastic, static_cast<uint8_t>(format)};
  host_wire_encode(wire);
  CHECK_EQ(found, unfit);
  CHECK(coded == wanted);

  std::vector<float> decoded(count);
  wire_decode(format, wanted.data() + offset, count, decoded.data());
  std::vector<unsigned char> target(4 * count + 16, kGuard);
  wire.values = target.data() + offset;
  host_wire_decode(wire);
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, target.data() + offset + 4 * i, 4);
    const bool same = std::isnan(value) ? std::isnan(decoded[i]) : std::memcmp(&value, &decoded[i], 4) == 0;
    CHECK_MESSAGE(same, "element ", i, ": ", value, " instead of ", decoded[i]);
  }
  CHECK_EQ(target[offset + 4 * count], kGuard);
}

}  // namespace

TEST_CASE("wire formats of GPUs: the same bytes and values, every length and alignment") {
  MESSAGE("seed ", kSeed);
  Random random(kSeed);
  for (int f = 1; f < kWireFormats; ++f) {
    const auto format = static_cast<WireFormat>(f);
    for (const bool stochastic : {false, true}) {
      if (stochastic && !wire_format_rounds_at_random(format)) continue;
      for (const size_t count : kCounts) {
        for (const size_t offset : {0u, 4u, 1u}) check(random, format, count, stochastic, offset);
      }
    }
  }
}

}  // namespace rondo::testing
