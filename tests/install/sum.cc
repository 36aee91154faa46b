// A program of somebody else's, against the installed headers and library.
#include <rondo/communicator.h>

#include <cstdio>
#include <vector>

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();
    std::vector<float> values(1000, static_cast<float>(group.rank() + 1));
    group.all_reduce(values.data(), values.data(), values.size(), rondo::DType::kFloat32);
    const float expected = static_cast<float>(group.size() * (group.size() + 1)) / 2;
    for (const float value : values) {
      if (value != expected) return 1;
    }
    std::printf("C++ rank %d of %d: %g\n", group.rank(), group.size(), static_cast<double>(values[0]));
  } catch (const rondo::Exception& error) {  // caught by its type across the library's border
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
