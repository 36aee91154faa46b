/* A process whose libraries were built for different MPIs: it loads MPICH's and Open MPI's, each apart from the other,
   and both work, also when one has ended. Prints "rank R of N: fine", or the line that failed. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      const char* why = dlerror();                                                                 \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, why == NULL ? "no error" : why); \
      exit(9);                                                                                     \
    }                                                                                              \
  } while (0)

/* Handles are ints in MPICH's ABI and addresses in Open MPI's: either comes in one register. */
struct Face {
  void* library;
  uintptr_t world, number, sum;
  int (*init)(int*, char***);
  int (*rank)(uintptr_t, int*);
  int (*size)(uintptr_t, int*);
  int (*all_reduce)(const void*, void*, int, uintptr_t, uintptr_t, uintptr_t);
  int (*finalize)(void);
};

static void* found(const struct Face* face, const char* name) {
  void* symbol = dlsym(face->library, name);
  CHECK(symbol != NULL);
  return symbol;
}

static void load(struct Face* face, const char* library) {
  face->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  CHECK(face->library != NULL);
  *(void**)&face->init = found(face, "MPI_Init");
  *(void**)&face->rank = found(face, "PMPI_Comm_rank");
  *(void**)&face->size = found(face, "PMPI_Comm_size");
  *(void**)&face->all_reduce = found(face, "MPI_Allreduce");
  *(void**)&face->finalize = found(face, "MPI_Finalize");
}

int main(void) {
  struct Face mpich = {.world = 0x44000000, .number = 0x4c000405, .sum = 0x58000003}, open = {0};
  load(&mpich, "libmpi.so.12");
  load(&open, "libmpi.so.40");
  open.world = (uintptr_t)found(&open, "ompi_mpi_comm_world");
  open.number = (uintptr_t)found(&open, "ompi_mpi_int");
  open.sum = (uintptr_t)found(&open, "ompi_mpi_op_sum");
  CHECK(mpich.all_reduce != open.all_reduce);

  int rank = -1, size = 0, same = -1;
  CHECK(mpich.init(NULL, NULL) == 0 && open.init(NULL, NULL) == 0);
  CHECK(mpich.rank(mpich.world, &rank) == 0 && mpich.size(mpich.world, &size) == 0);
  CHECK(open.rank(open.world, &same) == 0 && same == rank);
  for (int round = 0; round < 20; ++round) {
    int one = 1, rounds = round, ones = 0, sum = 0;
    CHECK(round >= 10 || (mpich.all_reduce(&one, &ones, 1, mpich.number, mpich.sum, mpich.world) == 0 && ones == size));
    if (round == 10) CHECK(mpich.finalize() == 0);
    CHECK(open.all_reduce(&rounds, &sum, 1, open.number, open.sum, open.world) == 0 && sum == size * round);
  }
  CHECK(open.finalize() == 0);
  printf("rank %d of %d: fine\n", rank, size);
}
