// mlp_{rondo,mpi,gloo,nccl}.cc: one trainer by four libraries. They differ in the lines that name the library.
//   LAUNCHER -n 2 ./mlp [EPOCHS [IMAGES [FOLDER]]]    (README.md: how each is built and started)
#include <nccl.h>

#include "steps.h"

int main(int argc, char** argv) {
  const int rank = std::atoi(std::getenv("RANK")), world = std::atoi(std::getenv("WORLD_SIZE"));
  ncclUniqueId id;
  ncclGetUniqueId(&id);  // the same on all ranks: of NCCL_COMM_ID
  ncclComm_t comm;
  ncclCommInitRank(&comm, world, id, rank);
  mlp::Steps steps(argc, argv, rank, world);
  cudaHostRegister(steps.memory().data(), steps.memory().size_bytes(), cudaHostRegisterMapped);
  for (std::span<float> sums = steps.next(); !sums.empty(); sums = steps.next()) {
    ncclAllReduce(sums.data(), sums.data(), sums.size(), ncclFloat, ncclSum, comm, nullptr);
    cudaStreamSynchronize(nullptr);
  }
  ncclCommDestroy(comm);
}
