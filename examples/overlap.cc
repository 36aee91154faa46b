// Communication behind computation: the sum of one block of gradients is under way while the next block is computed.
//   rondo-run -n 4 bazel-bin/examples/overlap
#include <algorithm>
#include <cstdio>
#include <vector>

#include <rondo/communicator.h>

namespace {

constexpr int kBlocks = 8;
constexpr size_t kBlock = 1 << 18;

// Stands for a layer's backward pass.
void compute(std::vector<float>& block, int rank, int index) {
  std::fill(block.begin(), block.end(), static_cast<float>(rank + index));
}

}  // namespace

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();
    std::vector<std::vector<float>> blocks(kBlocks, std::vector<float>(kBlock));
    std::vector<rondo::Work> works;
    for (int b = 0; b < kBlocks; ++b) {
      compute(blocks[b], group.rank(), b);
      // Starts the sum and returns. The block must stay as it is until the work is done.
      works.push_back(group.all_reduce_async(blocks[b]));
    }
    for (rondo::Work& work : works) work.wait();  // throws if the sum failed

    const int size = group.size();
    for (int b = 0; b < kBlocks; ++b) {
      const auto expected = static_cast<float>(size * (size - 1) / 2 + size * b);
      for (const float value : blocks[b]) {
        if (value != expected) return std::fprintf(stderr, "block %d: %g instead of %g\n", b, value, expected), 1;
      }
    }
    std::printf("rank %d of %d: %d sums done while computing\n", group.rank(), size, kBlocks);
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
