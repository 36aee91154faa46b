// Communication behind computation: the sum of one block of gradients is under way while the next block is computed.
// The blocks lie in registered memory, which ranks of one host reduce where it lies, without copies.
//   rondo-run -n 4 bazel-bin/examples/overlap
#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include <rondo/communicator.h>

namespace {

constexpr int kBlocks = 8;
constexpr size_t kBlock = 1 << 18;

// Stands for a layer's backward pass.
void compute(std::span<float> block, int rank, int index) {
  std::fill(block.begin(), block.end(), static_cast<float>(rank + index));
}

}  // namespace

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();
    // Allocate once and keep it: allocating costs system calls and page faults. The memory is zeroed.
    auto* memory = static_cast<float*>(group.allocate(kBlocks * kBlock * sizeof(float)));
    const auto block = [&](int b) { return std::span(memory + static_cast<size_t>(b) * kBlock, kBlock); };

    std::vector<rondo::Work> works;
    for (int b = 0; b < kBlocks; ++b) {
      compute(block(b), group.rank(), b);
      // Starts the sum and returns. The block must stay as it is until the work is done.
      works.push_back(group.all_reduce_async(block(b)));
    }
    for (rondo::Work& work : works) work.wait();  // throws if the sum failed

    const int size = group.size();
    for (int b = 0; b < kBlocks; ++b) {
      const auto expected = static_cast<float>(size * (size - 1) / 2 + size * b);
      for (const float value : block(b)) {
        if (value != expected) return std::fprintf(stderr, "block %d: %g instead of %g\n", b, value, expected), 1;
      }
    }
    std::printf("rank %d of %d: %d sums done while computing\n", group.rank(), size, kBlocks);
    group.deallocate(memory);
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
