// Sub-communicators: split() makes two of them, of the even and of the odd ranks, each with ranks of its own.
//   rondo-run -n 4 bazel-bin/examples/split
#include <cstdio>
#include <vector>

#include <rondo/communicator.h>

int main() {
  try {
    rondo::Communicator world = rondo::Communicator::join();
    rondo::Communicator half = world.split(world.rank() % 2);  // collective: all ranks call it

    std::vector<int> sum{world.rank()};
    half.all_reduce(sum);
    int expected = 0;
    for (int rank = world.rank() % 2; rank < world.size(); rank += 2) expected += rank;
    if (sum[0] != expected) return std::fprintf(stderr, "%d instead of %d\n", sum[0], expected), 1;

    std::printf("rank %d of %d: rank %d of %d in its half, sum %d\n", world.rank(), world.size(), half.rank(),
                half.size(), sum[0]);
    return 0;
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
