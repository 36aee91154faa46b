// device_bench [MiB]: GB/s of the passes of a device, read and written, beside its copies of the same size in the same
// run; buffers in turns, beyond what a cache holds. The driver: RONDO_TEST_DEVICE. Bars of two sources: 0.90 of the
// faster copy; of eight: 0.85.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "kernels/resolve.h"
#include "tests/support/fake_cuda/mirror.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTurns = 3;  // sets of buffers: 3 x 3 x 256 MiB is beyond the 50 MiB of an H100's cache
constexpr int kRuns = 10;
constexpr int kBatches = 7;  // the median of

double median_seconds(const Mirror& mirror, const std::function<void(int)>& put) {
  std::vector<double> times;
  for (int batch = -1; batch < kBatches; ++batch) {
    mirror.synchronize();
    const auto start = Clock::now();
    for (int run = 0; run < kRuns; ++run) put(run % kTurns);
    mirror.synchronize();
    if (batch >= 0) times.push_back(std::chrono::duration<double>(Clock::now() - start).count() / kRuns);
  }
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

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

double copy_gbps(const Mirror& mirror, size_t bytes) {
  const Memory memory(mirror, 2, bytes);
  const double seconds = median_seconds(mirror, [&](int turn) {
    const auto at = memory.all.begin() + 2 * turn;
    mirror.driver().copy({at[1], at[0], bytes, bytes, bytes, 1}, mirror.stream());
  });
  return 2e-9 * static_cast<double>(bytes) / seconds;
}

double pass_gbps(const Mirror& mirror, DType dtype, uint8_t fold, int sources, int targets, size_t bytes) {
  const int buffers = sources + targets;
  const Memory memory(mirror, buffers, bytes);
  const double seconds = median_seconds(mirror, [&](int turn) {
    DeviceFold pass = {};
    const auto at = memory.all.begin() + turn * buffers;
    std::copy_n(at, sources, pass.sources);
    std::copy_n(at + sources, targets, pass.targets);
    pass.count = bytes / dtype_bytes(dtype);
    pass.source_count = static_cast<uint8_t>(sources);
    pass.target_count = static_cast<uint8_t>(targets);
    pass.dtype = static_cast<uint8_t>(dtype);
    pass.fold = fold;
    mirror.driver().fold(pass, mirror.stream());
  });
  return 1e-9 * buffers * static_cast<double>(bytes) / seconds;
}
double sum_gbps(const Mirror& mirror, DType dtype, int sources, int targets, size_t bytes) {
  return pass_gbps(mirror, dtype, static_cast<uint8_t>(Fold::kSum), sources, targets, bytes);
}

int bench(size_t bytes) {
  Mirror mirror;
  DeviceFacts facts{};
  mirror.driver().facts(mirror.device(), &facts);
  std::printf("%s, compute capability %d.%d, driver %d; %zu MiB a buffer\n", facts.name.c_str(), facts.major,
              facts.minor, facts.driver, bytes >> 20);
  const double by_engine = copy_gbps(mirror, bytes);
  const double by_kernel = pass_gbps(mirror, DType::kUint8, kCopies, 1, 1, bytes);
  const double copy = std::max(by_engine, by_kernel);
  std::printf("copy: %.0f GB/s by the runtime, %.0f GB/s by the kernel\n", by_engine, by_kernel);
  bool reached = true;
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16, DType::kFloat8E4M3, DType::kInt8}) {
    for (const int sources : {2, 8}) {
      const double gbps = sum_gbps(mirror, dtype, sources, 1, bytes), ratio = gbps / copy;
      const bool has_bar = dtype == DType::kFloat32 || dtype == DType::kBfloat16;
      const bool below = has_bar && ratio < (sources == 2 ? 0.90 : 0.85);
      std::printf("%10s sum, %d sources: %.0f GB/s, %.2f of copy%s\n", dtype_name(dtype), sources, gbps, ratio,
                  below ? "  below the bar" : "");
      reached &= !below;
    }
  }
  std::printf("float32 sum, 8 sources to 8 targets: %.0f GB/s\n", sum_gbps(mirror, DType::kFloat32, 8, 8, bytes));
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace rondo::testing

int main(int argc, char** argv) {
  const size_t mebibytes = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 256;
  return rondo::testing::bench(mebibytes << 20);
}
