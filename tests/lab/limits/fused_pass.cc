#include "tests/lab/limits/fused_pass.h"

#include <cstring>
#include <new>
#include <vector>

#include "bench/limit/processes.h"
#include "kernels/combine.h"

namespace rondo::bench {
namespace {

constexpr double kSeconds = 0.2;  // some forty passes over 64 MiB

void fold_share(std::byte* memory, int rank, int world, uint64_t bytes) {
  const uint64_t elements = bytes / sizeof(float);
  const uint64_t begin = elements * static_cast<uint64_t>(rank) / static_cast<uint64_t>(world);
  const uint64_t end = elements * static_cast<uint64_t>(rank + 1) / static_cast<uint64_t>(world);
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (int i = 0; i < world; ++i) {
    std::byte* const at = memory + static_cast<uint64_t>(i) * bytes + begin * sizeof(float);
    sources.push_back(at);
    targets.push_back(at);
  }
  const auto count = static_cast<uint8_t>(world);
  combine({DType::kFloat32, Op::kSum, 1.0, 1}, {sources.data(), targets.data(), 0, count, count, false}, end - begin);
}

}  // namespace

double fused_pass_us(int world, uint64_t bytes) {
  const SharedArea result(sizeof(double)), memory(bytes * static_cast<uint64_t>(world));
  auto& us = *new (result.get()) double{};
  run_in_processes(world, [&](Measurer& process) {
    std::memset(memory.get() + static_cast<uint64_t>(process.rank()) * bytes, 0, bytes);
    us = process.batch_us(kSeconds, 0.5, [&] { fold_share(memory.get(), process.rank(), world, bytes); });
  });
  return us;
}

}  // namespace rondo::bench
