// combine_bench [--check] [--set baseline|avx2|avx512]
// Float32 sums against plain loops of the same run, then GB/s of every dtype, op and shape.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/combine.h"
#include "tests/kernels/plain_add.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBar = 0.9;  // of the plain loop's speed
constexpr int kPairs = 1001;  // pairs of batches: an odd number, for the median
constexpr size_t kBatchBytes =
    512 << 10;  // a batch repeats small sizes up to this: 10 us, far above the clock and below a time slice
constexpr size_t kOffsetBytes = 16;  // where malloc puts large blocks, in a page

struct Buffer {
  explicit Buffer(size_t bytes, int index)
      : memory(static_cast<unsigned char*>(std::aligned_alloc(4096, (bytes + 8192 + 4095) / 4096 * 4096)), std::free) {
    // At different offsets in the page: a load waits for an earlier store with the same low 12 address bits.
    data = memory.get() + kOffsetBytes + 256 * index;
    float* values = reinterpret_cast<float*>(data);
    for (size_t i = 0; i < bytes / sizeof(float); ++i) values[i] = 1.0f + static_cast<float>(i % 7);
  }
  std::unique_ptr<unsigned char, void (*)(void*)> memory;
  unsigned char* data;
};

template <class Work>
double seconds(Work work, int repeats) {
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Race {
  double ratio;  // of speeds, ours / plain: the median of the pairs
  double ours_gbps;
  double plain_gbps;
};

// bytes: of one buffer; three are moved. Pairs of batches, each pair in the other order than the one before.
template <class Ours, class Plain>
Race race(size_t bytes, Ours ours, Plain plain) {
  const int repeats = std::max<int>(1, static_cast<int>(kBatchBytes / bytes));
  const int pairs = bytes > kBatchBytes ? 41 : bytes > (64 << 10) ? 401 : kPairs;
  std::vector<double> ratios, ours_times, plain_times;
  for (int pair = -3; pair < pairs; ++pair) {
    double ours_time = 0, plain_time = 0;
    if (pair % 2 == 0) ours_time = seconds(ours, repeats);
    plain_time = seconds(plain, repeats);
    if (pair % 2 != 0) ours_time = seconds(ours, repeats);
    if (pair < 0) continue;  // warm-up
    ratios.push_back(plain_time / ours_time);
    ours_times.push_back(ours_time);
    plain_times.push_back(plain_time);
  }
  const double moved = 3e-9 * static_cast<double>(bytes) * repeats;
  return {median(ratios), moved / median(ours_times), moved / median(plain_times)};
}

bool float32_against_plain(InstructionSet set) {
  std::printf("float32 sum, 2 sources, against the plain loop (GB/s: read twice, written once)\n");
  std::printf("%12s %14s %10s %10s %8s\n", "bytes", "", "combine", "plain", "ratio");
  bool reached = true;
  const CombineSpec spec{.dtype = DType::kFloat32, .op = Op::kSum};
  for (size_t bytes : {size_t{32} << 10, size_t{512} << 10, size_t{64} << 20}) {
    Buffer left(bytes, 0), right(bytes, 1), sum(bytes, 2);
    const size_t count = bytes / sizeof(float);
    auto* const l = reinterpret_cast<float*>(left.data);
    auto* const r = reinterpret_cast<float*>(right.data);
    auto* const s = reinterpret_cast<float*>(sum.data);
    const void* sources[] = {l, r};
    for (bool in_place : {false, true}) {
      void* targets[] = {in_place ? l : s};
      const CombineMove move{.sources = sources, .targets = targets, .source_count = 2, .target_count = 1};
      const auto ours = [&] { combine_with(set, spec, move, count); };
      const Race result = in_place ? race(bytes, ours, [&] { plain_add_in_place(l, r, count); })
                                   : race(bytes, ours, [&] { plain_add(l, r, s, count); });
      std::printf("%12zu %14s %10.2f %10.2f %8.3f%s\n", bytes, in_place ? "in place" : "out of place", result.ours_gbps,
                  result.plain_gbps, result.ratio, result.ratio < kBar ? "  below the bar" : "");
      reached &= result.ratio >= kBar;
    }
  }
  return reached;
}

struct Shape {
  int sources;
  int targets;
};

double speed(InstructionSet set, const CombineSpec& spec, Shape shape, size_t bytes, bool flagged) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < shape.sources + shape.targets; ++i) buffers.emplace_back(bytes, i % 15);
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (int i = 0; i < shape.sources; ++i) sources.push_back(buffers[i].data);
  for (int i = 0; i < shape.targets; ++i) targets.push_back(buffers[shape.sources + i].data);
  const CombineMove move{.sources = sources.data(),
                         .targets = targets.data(),
                         .scaled = flagged ? 2u : 0u,
                         .source_count = static_cast<uint8_t>(shape.sources),
                         .target_count = static_cast<uint8_t>(shape.targets),
                         .finish = flagged};
  const int repeats = std::max<int>(1, static_cast<int>((1 << 20) / bytes));
  std::vector<double> times;
  for (int i = 0; i < 21; ++i)
    times.push_back(seconds([&] { combine_with(set, spec, move, bytes / dtype_bytes(spec.dtype)); }, repeats));
  return 1e-9 * static_cast<double>(bytes) * repeats * (shape.sources + shape.targets) / median(times);
}

void every_dtype(InstructionSet set, size_t bytes) {
  std::printf("\n%zu KiB a buffer, 2 sources, 1 target, flagged scaled and finish: GB/s read and written\n%10s",
              bytes >> 10, "");
  for (int op = 0; op < kOps; ++op) std::printf("%10s", op_name(static_cast<Op>(op)));
  for (int dtype = 0; dtype < kDTypes; ++dtype) {
    std::printf("\n%10s", dtype_name(static_cast<DType>(dtype)));
    for (int op = 0; op < kOps; ++op) {
      const CombineSpec spec{static_cast<DType>(dtype), static_cast<Op>(op), 0.5, 3};
      if (op_supports(spec.op, spec.dtype))
        std::printf("%10.1f", speed(set, spec, {2, 1}, bytes, true));
      else
        std::printf("%10s", "-");
    }
  }
  std::printf("\n");
}

void shapes(InstructionSet set, size_t bytes) {
  const Shape list[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 3}, {3, 1}, {3, 2},
                        {4, 1}, {4, 4}, {5, 1}, {8, 1}, {8, 8}, {16, 1}};
  std::printf("\n%zu KiB a buffer, sum: GB/s read and written\n%10s", bytes >> 10, "");
  for (Shape shape : list) std::printf("%7d>%-2d", shape.sources, shape.targets);
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16, DType::kInt32, DType::kInt8}) {
    std::printf("\n%10s", dtype_name(dtype));
    for (Shape shape : list) std::printf("%10.1f", speed(set, {.dtype = dtype}, shape, bytes, false));
  }
  std::printf("\n");
}

int bench(int argc, char** argv) {
  bool check = false;
  InstructionSet set = active_instruction_set();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) check = true;
    for (InstructionSet named : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512})
      if (std::strcmp(argv[i], instruction_set_name(named)) == 0) set = named;
  }
  if (!instruction_set_available(set)) {
    std::fprintf(stderr, "this machine has no %s\n", instruction_set_name(set));
    return 2;
  }
  std::printf("instruction set: %s\n", instruction_set_name(set));
  const bool reached = float32_against_plain(set);
  if (check) {
    std::printf(reached ? "the bar of %.2f holds\n" : "below the bar of %.2f\n", kBar);
    return reached ? 0 : 1;
  }
  every_dtype(set, 16 << 10);
  every_dtype(set, 1 << 20);
  shapes(set, 16 << 10);
  shapes(set, 4 << 20);
  return 0;
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) { return rondo::bench(argc, argv); }
