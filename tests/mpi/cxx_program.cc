// A program that is C but for its compiler: Open MPI's header declares MPI's old interface of C++ to it, whose inline
// code refers to five names of libmpi_cxx.so.40.
#include <mpi.h>

#include <cstdio>

namespace MPI {
class Comm {
 public:
  Comm();
};
class Intracomm : public Comm {};
class Datatype {
 public:
  void Free();
};
class Win {
 public:
  void Free();
};
}  // namespace MPI
extern "C" void ompi_mpi_cxx_op_intercept();
extern "C" void ompi_op_set_cxx_callback();

static MPI::Intracomm world;  // its constructor runs

int main(int argc, char** argv) {
  void (MPI::Datatype::*volatile free_type)() = &MPI::Datatype::Free;
  void (MPI::Win::*volatile free_window)() = &MPI::Win::Free;
  void (*volatile intercept)() = ompi_mpi_cxx_op_intercept;
  void (*volatile set_callback)() = ompi_op_set_cxx_callback;
  int rank = 0, size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool all = free_type != nullptr && free_window != nullptr && intercept != nullptr && set_callback != nullptr;
  if (all) std::printf("rank %d of %d: fine\n", rank, size);
  MPI_Finalize();
}
