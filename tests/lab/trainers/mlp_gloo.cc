// mlp_{rondo,mpi,gloo}.cc: one trainer by three libraries. They differ in the lines that name the library.
//   LAUNCHER -n 2 ./mlp [EPOCHS [IMAGES [FOLDER]]]    (tests/trainers/libraries.sh: how each is built and started)
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "tests/lab/trainers/steps.h"

int main(int argc, char** argv) {
  const int rank = std::atoi(std::getenv("RANK")), world = std::atoi(std::getenv("WORLD_SIZE"));
  auto comm = std::make_shared<gloo::rendezvous::Context>(rank, world);
  gloo::rendezvous::FileStore store(std::getenv("GLOO_STORE"));
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  comm->connectFullMesh(store, device);
  mlp::Steps steps(argc, argv, rank, world);
  for (std::span<float> sums = steps.next(); !sums.empty(); sums = steps.next()) {
    gloo::AllreduceRingChunked<float>(comm, {sums.data()}, static_cast<int>(sums.size())).run();
  }
  store.set("end" + std::to_string(rank), {1});  // a rank that ends alone would break the others' last call
  for (int peer = 0; peer < world; ++peer) store.wait({"end" + std::to_string(peer)});
}
