/* A program of MPI that goes on after a failure, as those of User Level Failure Mitigation are written: its last rank
   dies at step 40, after an agreement or (with an argument) before one. Prints "rank R of N: fine", or the line that
   failed. */

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/mpi/check.h"

static int members(MPI_Group group) {
  int count = 0;
  MPI_Group_size(group, &count);
  return count;
}

/* A second communicator of those that live: a message of the one is none of the other. */
static void shrink_again(MPI_Comm comm, MPI_Comm first) {
  MPI_Comm second;
  int rank, size, flag = 0, word = 7;
  CHECK(MPIX_Comm_shrink(comm, &second) == MPI_SUCCESS);
  MPI_Comm_rank(second, &rank);
  MPI_Comm_size(second, &size);
  if (size > 1 && rank == 0) MPI_Send(&word, 1, MPI_INT, 1, 7, second);
  MPI_Barrier(second);
  if (size > 1 && rank == 1) {
    MPI_Iprobe(0, 7, first, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Recv(&word, 1, MPI_INT, 0, 7, second, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&second);
}

int main(int argc, char** argv) {
  const int before = argc > 1;
  MPI_Comm comm, next, part, inter;
  MPI_Group lost, world;
  int flag, flags, acknowledged;
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int all = size, last = rank == size - 1, zero = 0;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Comm_split(MPI_COMM_WORLD, rank != 0, 0, &part); /* rank 0 and the others */
  MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, rank == 0, 5, &inter);

  for (int step = 0; step < 100; ++step) {
    if (step == 40 && last && size == all && before) raise(SIGKILL);
    long own = step, sum = 0;
    const int error = MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, comm);
    CHECK(error == MPI_SUCCESS || class_of(error) == MPI_ERR_PROC_FAILED || class_of(error) == MPI_ERR_REVOKED);
    if (error == MPI_SUCCESS) CHECK(sum == (long)step * size);
    if (error != MPI_SUCCESS) CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
    /* All or none have done the step. */
    flag = error == MPI_SUCCESS ? 3 : 2;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS);
    CHECK(flag == 2 || flag == 3);
    if (flag == 3) {
      if (step == 40 && last && size == all && !before) raise(SIGKILL);
      continue;
    }
    CHECK(MPIX_Comm_is_revoked(comm, &flags) == MPI_SUCCESS && flags);
    CHECK(MPIX_Comm_shrink(comm, &next) == MPI_SUCCESS);
    shrink_again(comm, next);
    CHECK(MPIX_Comm_get_failed(comm, &lost) == MPI_SUCCESS && members(lost) <= 1);
    CHECK(MPIX_Comm_ack_failed(comm, 1, &acknowledged) == MPI_SUCCESS && acknowledged == members(lost));
    CHECK(MPIX_Comm_failure_get_acked(comm, &lost) == MPI_SUCCESS && members(lost) == acknowledged);
    CHECK(class_of(MPI_Barrier(comm)) != MPI_SUCCESS);
    CHECK(class_of(MPI_Barrier(inter)) != MPI_SUCCESS); /* of both groups, one of which has lost the rank */
    CHECK(MPIX_Comm_get_failed(inter, &lost) == MPI_SUCCESS && members(lost) <= 1);
    int dead = all - 1;
    if (members(lost) == 1) MPI_Group_translate_ranks(lost, 1, &zero, world, &dead);
    CHECK(dead == all - 1);
    MPI_Comm_free(&comm);
    comm = next;
    MPI_Comm_size(comm, &size);
    CHECK(size == all - 1);
    --step; /* again */
  }
  CHECK(size == all - 1);

  /* A communicator that one rank revokes is so on all, and others are not. */
  MPI_Comm other;
  MPI_Comm_dup(comm, &other);
  if (rank == 0) CHECK(MPIX_Comm_revoke(other) == MPI_SUCCESS);
  CHECK(class_of(MPI_Barrier(other)) == MPI_ERR_REVOKED);
  MPI_Comm_free(&other);
  long own = 1, sum = 0;
  CHECK(MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, comm) == MPI_SUCCESS && sum == size);
  int to[2] = {rank, -1};
  CHECK(MPI_Sendrecv(&to[0], 1, MPI_INT, (rank + 1) % size, 3, &to[1], 1, MPI_INT, (rank + size - 1) % size, 3, comm,
                     MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(to[1] == (rank + size - 1) % size);
  MPI_Comm_free(&comm);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&part);
  MPI_Group_free(&world);
  printf("rank %d of %d: fine\n", rank, size);
  MPI_Finalize();
  return 0;
}
