// Registered memory: ranks of one host that share memory reduce buffers from allocate() where they lie, without copies.
//   rondo-run -n 4 bazel-bin/examples/registered
#include <cstdio>
#include <span>

#include <rondo/communicator.h>

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();

    // Allocate once and keep it: allocating costs system calls and page faults. The memory is zeroed.
    constexpr size_t kCount = 1 << 20;
    const std::span values(static_cast<float*>(group.allocate(kCount * sizeof(float))), kCount);

    for (int step = 0; step < 10; ++step) {
      for (float& value : values) value = static_cast<float>(group.rank() + step);
      group.all_reduce(values);
      const int size = group.size();
      const auto expected = static_cast<float>(size * (size - 1) / 2 + size * step);
      for (const float value : values) {
        if (value != expected) return std::fprintf(stderr, "step %d: %g instead of %g\n", step, value, expected), 1;
      }
    }
    const auto algorithm =
        group.algorithm_for(rondo::Collective::kAllReduce, kCount, rondo::DType::kFloat32, rondo::Op::kSum, true);
    std::printf("rank %d of %d: sums by %s\n", group.rank(), group.size(), rondo::algorithm_name(algorithm));
    group.deallocate(values.data());
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
