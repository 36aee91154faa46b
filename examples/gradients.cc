// The gradients of a whole model in one call: all_reduce_many averages a list of tensors, small ones in shared buckets.
//   rondo-run -n 4 bazel-bin/examples/gradients
#include <cstdio>
#include <vector>

#include <rondo/communicator.h>

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();

    // The layers of a small network: weights and biases of very different sizes, the same list on all ranks.
    std::vector<std::vector<float>> gradients;
    for (const size_t count : {784 * 256, 256, 256 * 256, 256, 256 * 10, 10}) {
      gradients.emplace_back(count, static_cast<float>(group.rank()));
    }

    std::vector<rondo::TensorRef> tensors;
    for (auto& gradient : gradients) {
      tensors.push_back({gradient.data(), gradient.data(), gradient.size(), rondo::DType::kFloat32});  // in place
    }
    group.all_reduce_many(tensors, rondo::Op::kAverage);

    const float expected = static_cast<float>(group.size() - 1) / 2;  // the average of 0, 1, ..., size - 1
    for (const auto& gradient : gradients) {
      for (const float value : gradient) {
        if (value != expected) return std::fprintf(stderr, "%g instead of %g\n", value, expected), 1;
      }
    }
    std::printf("rank %d of %d: %zu tensors averaged to %g\n", group.rank(), group.size(), gradients.size(), expected);
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
