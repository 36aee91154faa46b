// mlp_{rondo,mpi,gloo}.cc: one trainer by three libraries. They differ in the lines that name the library.
//   LAUNCHER -n 2 ./mlp [EPOCHS [IMAGES [FOLDER]]]    (tests/trainers/libraries.sh: how each is built and started)
#include <mpi.h>

#include "tests/lab/trainers/steps.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  mlp::Steps steps(argc, argv, rank, world);
  for (std::span<float> sums = steps.next(); !sums.empty(); sums = steps.next()) {
    MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  MPI_Finalize();
}
