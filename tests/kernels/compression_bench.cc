// compression_bench [--check] [--mib N]
// Coding, decoding and selecting float32 elements against memcpy that moves as many bytes, for every instruction set;
// packing and unpacking half as many bytes of bfloat16.
// --check: exits 1 if AVX2 or AVX-512 is slower than 0.9 of memcpy, or packs less than 1.25 GB/s.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/pack.h"
#include "kernels/select.h"
#include "kernels/wire_codec.h"
#include "tests/kernels/instruction_sets.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBar = 0.9;       // of memcpy's speed
constexpr double kPackBar = 1.25;  // GB/s of elements, either way
constexpr int kPairs = 21;         // an odd number, for the median

struct Buffers {
  explicit Buffers(size_t elements)
      : values(elements),
        residual(elements),
        decoded(elements),
        coded(4 * elements),
        from(8 * elements),
        to(8 * elements),
        indices(elements),
        selected(elements) {
    for (size_t i = 0; i < elements; ++i) {
      // -1 .. 1, by a multiplicative hash.
      values[i] = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(i) * 2654435761u)) * 0x1p-31f;
      residual[i] = values[elements - 1 - i] * 0.25f;
    }
  }
  std::vector<float> values, residual, decoded;
  std::vector<unsigned char> coded, from, to;
  std::vector<uint32_t> indices;
  std::vector<float> selected;
};

template <class Work>
double seconds(Work work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// bytes: read and written by `ours`. Prints a line; true: as fast as the bar.
template <class Ours>
bool race(Buffers& buffers, const std::string& name, size_t bytes, Ours ours) {
  const auto copy = [&] { std::memcpy(buffers.to.data(), buffers.from.data(), bytes / 2); };
  std::vector<double> ratios, times;
  for (int pair = -2; pair < kPairs; ++pair) {
    double own = 0;
    if (pair % 2 == 0) own = seconds(ours);
    const double copied = seconds(copy);
    if (pair % 2 != 0) own = seconds(ours);
    if (pair < 0) continue;  // warm-up
    ratios.push_back(copied / own);
    times.push_back(own);
  }
  const double ratio = median(ratios), gbps = 1e-9 * static_cast<double>(bytes) / median(times);
  std::printf("%-28s%10.2f%10.1f%10.1f%10.2f%s\n", name.c_str(), median(times) * 1e3, gbps, gbps / ratio, ratio,
              ratio < kBar ? "  below the bar" : "");
  return ratio >= kBar;
}

bool run_packed(InstructionSet set, Buffers& buffers) {
  const size_t count = buffers.values.size(), bytes = count * sizeof(uint16_t);
  narrow(DType::kBfloat16, buffers.values.data(), count, buffers.from.data());
  std::vector<double> packing, unpacking;
  size_t packed = 0;
  for (int i = 0; i < kPairs; ++i) {
    packing.push_back(
        seconds([&] { packed = pack(DType::kBfloat16, buffers.from.data(), count, buffers.coded.data(), set); }));
    unpacking.push_back(
        seconds([&] { unpack(DType::kBfloat16, buffers.coded.data(), packed, count, buffers.to.data(), set); }));
  }
  const auto gbps = [&](const std::vector<double>& times) { return 1e-9 * static_cast<double>(bytes) / median(times); };
  std::printf("bfloat16 packed into %.3f of its bytes: %.1f GB/s, unpacked %.1f GB/s\n",
              static_cast<double>(packed) / static_cast<double>(bytes), gbps(packing), gbps(unpacking));
  return std::min(gbps(packing), gbps(unpacking)) >= kPackBar;
}

bool run(InstructionSet set, Buffers& buffers) {
  const size_t count = buffers.values.size(), bytes = count * sizeof(float);
  std::printf("\n%s, %zu MiB of float32\n%-28s%10s%10s%10s%10s\n", instruction_set_name(set), bytes >> 20, "", "ms",
              "GB/s", "memcpy", "ratio");
  bool reached = true;
  for (int f = 1; f < static_cast<int>(WireFormat::kPacked); ++f) {
    const auto format = static_cast<WireFormat>(f);
    const std::string name = wire_format_name(format);
    const size_t moved = bytes + wire_bytes(format, count);
    for (const bool stochastic : {false, true}) {
      if (stochastic && !wire_format_rounds_at_random(format)) continue;
      const std::string how = stochastic ? " at random" : "";
      reached &= race(buffers, name + " encode" + how, moved, [&] {
        wire_encode(format, buffers.values.data(), count, buffers.coded.data(), {stochastic, 7, 0}, set);
      });
    }
    reached &= race(buffers, name + " decode", moved,
                    [&] { wire_decode(format, buffers.coded.data(), count, buffers.decoded.data(), set); });
  }
  reached &= run_packed(set, buffers);
  for (const double share : {0.01, 0.05}) {
    const auto least = std::bit_cast<uint32_t>(static_cast<float>(1.25 - share));
    // Values and residuals read; what is selected is little.
    reached &= race(buffers, "select about " + std::to_string(static_cast<int>(100 * share)) + " %", 2 * bytes, [&] {
      select_magnitudes({buffers.values.data(), buffers.residual.data(), count, least, 0, buffers.indices.data(),
                         buffers.selected.data()},
                        set);
    });
  }
  return reached;
}

int bench(int argc, char** argv) {
  bool check = false;
  size_t mib = 64;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) check = true;
    if (std::strcmp(argv[i], "--mib") == 0 && i + 1 < argc) mib = std::strtoul(argv[++i], nullptr, 10);
  }
  if (mib < 1 || mib > 1024) {
    std::fprintf(stderr, "compression_bench: --mib is %zu; it is 1 to 1024\n", mib);
    return 2;
  }
  Buffers buffers(mib << 18);
  bool reached = true;
  for (const InstructionSet set : testing::available_instruction_sets()) {
    const bool fast = run(set, buffers);
    reached &= fast || set == InstructionSet::kBaseline;
  }
  if (!check) return 0;
  std::printf(reached ? "\nthe bar of %.2f holds\n" : "\nbelow the bar of %.2f\n", kBar);
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) { return rondo::bench(argc, argv); }
