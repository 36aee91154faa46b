/* What the programs of these tests share; each is one file. */

#include <mpi.h>
#include <stdio.h>

static int rank, size;

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #condition); \
      MPI_Abort(MPI_COMM_WORLD, 9);                                          \
    }                                                                        \
  } while (0)

static inline int class_of(int error) {
  int error_class = 0;
  MPI_Error_class(error, &error_class);
  return error_class;
}
