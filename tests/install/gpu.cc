// A call on a stream where no GPU can be used: an error that says why, and calls on host memory go on.
#include <rondo/communicator.h>

#include <cstdio>
#include <vector>

int main() {
  rondo::Communicator group = rondo::Communicator::join();
  std::vector<float> values(1, 1.0f);
  try {
    group.all_reduce(values.data(), values.data(), 1, rondo::DType::kFloat32, rondo::Op::kSum, {.stream = nullptr});
  } catch (const rondo::Exception& error) {
    std::printf("%s: %s\n", rondo::error_code_name(error.code()), error.what());
  }
  group.all_reduce(values);
  std::printf("on host memory: %g\n", values[0]);
}
