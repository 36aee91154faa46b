// Calls of the C++ API in a program that is compiled with -fno-exceptions, those that check their arguments among them.
#include <rondo/communicator.h>
#include <rondo/dist_opt.h>
#include <rondo/sparse.h>

#include <cstdio>
#include <vector>

int main() {
  rondo::Communicator comm = rondo::Communicator::join();
  const int other = 1 - comm.rank();
  int sum = comm.rank() + 1, theirs = 0;
  comm.all_reduce(sum);
  std::vector<int> both(2);
  const std::vector<uint64_t> counts{1, 1};
  comm.all_gather_v(sum, both, counts);
  comm.send(both[static_cast<size_t>(other)], other);
  const rondo::Message found = comm.mprobe(other, 0);
  comm.mrecv(&theirs, 1, rondo::DType::kInt32, found.matched);
  std::printf("rank %d of %d: %d\n", comm.rank(), comm.size(), theirs);
}
