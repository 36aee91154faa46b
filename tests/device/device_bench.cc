// device_bench [MiB]: GB/s of the passes of a device, read and written, beside its copies of the same size in the same
// run; buffers in turns, beyond what a cache holds. The driver: RONDO_TEST_DEVICE. Bars of two sources: 0.90 of the
// faster copy; of eight: 0.85.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/device_rates.h"
#include "kernels/resolve.h"
#include "tests/support/fake_cuda/mirror.h"

namespace rondo::testing {
namespace {

constexpr int kTurns = 3;  // sets of buffers: 3 x 3 x 256 MiB is beyond the 50 MiB of an H100's cache

struct Memory {
  Memory(const Mirror& of, int buffers, size_t bytes) : mirror(of) {
    for (int i = 0; i < buffers * kTurns; ++i) {
      void* data = nullptr;
      if (mirror.driver().allocate(mirror.device(), bytes, &data) != 0) {
        std::fprintf(stderr, "no device memory for %d buffers of %zu bytes\n", buffers * kTurns, bytes);
        std::exit(1);
      }
      all.push_back(data);
    }
  }
  ~Memory() {
    for (void* data : all) mirror.driver().release(mirror.device(), data);
  }
  const Mirror& mirror;
  std::vector<void*> all;
};

double sum_gbps(const Mirror& mirror, bench::DeviceRates& rates, DType dtype, int sources, int targets, size_t bytes) {
  const int buffers = sources + targets;
  const Memory memory(mirror, buffers, bytes);
  return rates.gbps(bytes * static_cast<size_t>(buffers), [&](int run) {
    const auto at = memory.all.begin() + run % kTurns * buffers;
    const std::vector<const void*> from(at, at + sources);
    const DeviceFold pass =
        pass_of(dtype, Fold::kSum, from, {at + sources, static_cast<size_t>(targets)}, bytes / dtype_bytes(dtype));
    return mirror.driver().fold(pass, mirror.stream());
  });
}

int bench(size_t bytes) {
  Mirror mirror;
  DeviceFacts facts{};
  mirror.driver().facts(mirror.device(), &facts);
  std::printf("%s, compute capability %d.%d, driver %d; %zu MiB a buffer\n", facts.name.c_str(), facts.major,
              facts.minor, facts.driver, bytes >> 20);
  bench::DeviceRates rates(mirror.driver(), mirror.device(), mirror.stream());
  const bench::DeviceRates::Copies copies = rates.copies(bytes);
  const double copy = copies.faster();
  std::printf("copy: %.0f GB/s by the driver, %.0f GB/s by the kernel\n", copies.by_driver, copies.by_pass);
  bool reached = true;
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16, DType::kFloat8E4M3, DType::kInt8}) {
    for (const int sources : {2, 8}) {
      const double gbps = sum_gbps(mirror, rates, dtype, sources, 1, bytes), ratio = gbps / copy;
      const bool has_bar = dtype == DType::kFloat32 || dtype == DType::kBfloat16;
      const bool below = has_bar && ratio < (sources == 2 ? 0.90 : 0.85);
      std::printf("%10s sum, %d sources: %.0f GB/s, %.2f of copy%s\n", dtype_name(dtype), sources, gbps, ratio,
                  below ? "  below the bar" : "");
      reached &= !below;
    }
  }
  std::printf("float32 sum, 8 sources to 8 targets: %.0f GB/s\n",
              sum_gbps(mirror, rates, DType::kFloat32, 8, 8, bytes));
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace rondo::testing

int main(int argc, char** argv) {
  const size_t mebibytes = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 256;
  return rondo::testing::bench(mebibytes << 20);
}
