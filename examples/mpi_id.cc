// A unique id handed over by MPI: MPI starts the ranks, Rondo reduces. Not built by Bazel, since it needs an MPI:
//   mpicxx -std=c++20 mpi_id.cc $(pkg-config --cflags --libs rondo) -o mpi_id && mpirun -n 4 ./mpi_id
#include <mpi.h>

#include <cstdio>
#include <optional>
#include <vector>

#include <rondo/communicator.h>
#include <rondo/unique_id.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    rondo::JoinOptions options;
    MPI_Comm_rank(MPI_COMM_WORLD, &options.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &options.world);

    // Rank 0 makes the id and serves it until all have joined. Ranks of several hosts need the address of its host
    // here. The server lives until all have joined.
    std::optional<rondo::UniqueIdServer> server;
    char id[256] = {};
    if (options.rank == 0) {
      server.emplace("127.0.0.1");
      std::snprintf(id, sizeof id, "%s", server->id().c_str());
    }
    MPI_Bcast(id, sizeof id, MPI_CHAR, 0, MPI_COMM_WORLD);
    options.rendezvous = id;

    rondo::Communicator group = rondo::Communicator::join(options);
    std::vector<int> sum{group.rank() + 1};
    group.all_reduce(sum);
    status = sum[0] == group.size() * (group.size() + 1) / 2 ? 0 : 1;
    std::printf("rank %d of %d: the sum is %d\n", group.rank(), group.size(), sum[0]);
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
