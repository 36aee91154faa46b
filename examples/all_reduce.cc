// The first program: every rank contributes a vector, and gets the sum of all of them.
//   rondo-run -n 4 bazel-bin/examples/all_reduce
#include <cstdio>
#include <vector>

#include <rondo/communicator.h>

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();

    std::vector<float> values(1 << 20, static_cast<float>(group.rank() + 1));
    group.all_reduce(values.data(), values.data(), values.size(), rondo::DType::kFloat32);

    const float expected = static_cast<float>(group.size() * (group.size() + 1)) / 2;  // 1 + 2 + ... + size
    for (const float value : values) {
      if (value != expected) {
        std::fprintf(stderr, "rank %d: %g instead of %g\n", group.rank(), value, expected);
        return 1;
      }
    }
    std::printf("rank %d of %d: every sum is %g\n", group.rank(), group.size(), expected);
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
