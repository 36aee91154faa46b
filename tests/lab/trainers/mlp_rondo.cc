// mlp_{rondo,mpi,gloo}.cc: one trainer by three libraries. They differ in the lines that name the library.
//   LAUNCHER -n 2 ./mlp [EPOCHS [IMAGES [FOLDER]]]    (tests/trainers/libraries.sh: how each is built and started)
#include <rondo/communicator.h>

#include "tests/lab/trainers/steps.h"

int main(int argc, char** argv) {
  auto comm = rondo::Communicator::join();
  const int rank = comm.rank(), world = comm.size();
  mlp::Steps steps(argc, argv, rank, world);
  for (std::span<float> sums = steps.next(); !sums.empty(); sums = steps.next()) {
    comm.all_reduce(sums);
  }
}
