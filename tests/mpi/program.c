/* A program of MPI as its users write them, compiled against a face's header. Checks every family of calls and prints
   "rank R of N: fine", or the line that failed. With an argument it does one thing wrong, for mpi_test.cc. */

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/mpi/check.h"

static void messages(void) {
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  MPI_Request requests[2];
  MPI_Status statuses[2], status;
  int out = rank, in = -1, count = 0, flag = 0;
  MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(&out, 1, MPI_INT, next, 7, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, statuses);
  CHECK(in == last && statuses[0].MPI_SOURCE == last && statuses[0].MPI_TAG == 7);
  CHECK(requests[0] == MPI_REQUEST_NULL);

  /* Every second element of an array; the receiver takes them as they come. */
  double spread[8], packed[4] = {0, 0, 0, 0};
  MPI_Datatype vector;
  for (int i = 0; i < 8; ++i) spread[i] = 10 * rank + i;
  MPI_Type_vector(4, 1, 2, MPI_DOUBLE, &vector);
  MPI_Type_commit(&vector);
  MPI_Isend(spread, 1, vector, next, 8, MPI_COMM_WORLD, &requests[0]);
  MPI_Probe(last, 8, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_DOUBLE, &count);
  CHECK(count == 4);
  MPI_Recv(packed, count, MPI_DOUBLE, last, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  for (int i = 0; i < 4; ++i) CHECK(packed[i] == 10 * last + 2 * i);
  MPI_Type_free(&vector);

  MPI_Sendrecv_replace(&out, 1, MPI_INT, next, 9, last, 9, MPI_COMM_WORLD, &status);
  CHECK(out == last);
  MPI_Sendrecv_replace(NULL, 5, MPI_INT, MPI_PROC_NULL, 9, MPI_PROC_NULL, 9, MPI_COMM_WORLD, &status);
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
  MPI_Isendrecv_replace(NULL, 5, MPI_INT, MPI_PROC_NULL, 9, MPI_PROC_NULL, 9, MPI_COMM_WORLD, &requests[0]);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);

  MPI_Irecv(&in, 1, MPI_INT, last, 10, MPI_COMM_WORLD, &requests[0]);
  MPI_Cancel(&requests[0]);
  MPI_Wait(&requests[0], &status);
  MPI_Test_cancelled(&status, &flag);
  CHECK(flag);

  /* A message longer than its buffer is the receiver's error alone. */
  int two[2] = {rank, rank};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Isend(two, 2, MPI_INT, next, 11, MPI_COMM_WORLD, &requests[0]);
  CHECK(class_of(MPI_Recv(&in, 1, MPI_INT, last, 11, MPI_COMM_WORLD, &status)) == MPI_ERR_TRUNCATE);
  CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(class_of(MPI_Sendrecv(two, 2, MPI_INT, next, 12, &in, 1, MPI_INT, last, MPI_ANY_TAG, MPI_COMM_WORLD,
                              &status)) == MPI_ERR_TRUNCATE);
  CHECK(in == last && status.MPI_SOURCE == last && status.MPI_TAG == 12);
  CHECK(class_of(MPI_Send(two, -1, MPI_INT, next, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Send(two, 1, MPI_DATATYPE_NULL, next, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
  CHECK(class_of(MPI_Send(two, 1, MPI_INT, size, 0, MPI_COMM_WORLD)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Send(two, 1, MPI_INT, next, -5, MPI_COMM_WORLD)) == MPI_ERR_TAG);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Takes its arguments in order: a * b is not b * a. */
static void compose(void* in, void* inout, int* count, MPI_Datatype* type) {
  const double* a = in;
  double* b = inout;
  (void)type;
  for (int i = 0; i < *count; ++i, a += 2, b += 2) { /* x -> p x + q, the left one after the right one */
    const double p = a[0] * b[0], q = a[0] * b[1] + a[1];
    b[0] = p;
    b[1] = q;
  }
}

enum { kLong = 1000 };
static void add_long(void* in, void* inout, int* count, MPI_Datatype* type) {
  const double* a = in;
  double* b = inout;
  (void)type;
  for (int i = 0; i < *count * kLong; ++i) b[i] += a[i];
}

/* Steps by the type's extent, for which it asks. */
static void add_apart(void* in, void* inout, int* count, MPI_Datatype* type) {
  MPI_Aint lb, extent;
  MPI_Type_get_extent(*type, &lb, &extent);
  for (int i = 0; i < *count; ++i) *(int*)((char*)inout + i * extent) += *(const int*)((char*)in + i * extent);
}
/* Elements that lie the one below the other. */
static void reduces_downwards(void) {
  int in[6], out[6];
  MPI_Op op;
  MPI_Datatype down;
  MPI_Type_create_resized(MPI_INT, 0, -2 * (MPI_Aint)sizeof(int), &down);
  MPI_Type_commit(&down);
  MPI_Op_create(add_apart, 1, &op);
  for (int i = 0; i < 6; ++i) in[i] = rank + i, out[i] = -1;
  MPI_Allreduce(&in[4], &out[4], 3, down, op, MPI_COMM_WORLD);
  for (int i = 0; i < 6; ++i) CHECK(out[i] == (i % 2 == 0 ? size * (size - 1) / 2 + size * i : -1));
  MPI_Op_free(&op);
  MPI_Type_free(&down);
}
/* The function gets a handle that it can ask by, though the program has freed it; afterwards there is none. */
static void reduces_by_freed(void) {
  int in[4] = {1, 0, 2, 0}, out[4], bytes;
  MPI_Op op;
  MPI_Datatype padded, handle;
  MPI_Request request;
  MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &padded);
  MPI_Type_commit(&padded);
  MPI_Op_create(add_apart, 1, &op);
  MPI_Allreduce_init(in, out, 2, padded, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  handle = padded;
  MPI_Type_free(&padded);
  MPI_Op_free(&op);
  for (int turn = 0; turn < 2; ++turn) {
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(out[0] == size && out[2] == 2 * size);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  padded = handle;
  CHECK(class_of(MPI_Type_free(&padded)) == MPI_ERR_TYPE);
  MPI_Request_free(&request);
  CHECK(class_of(MPI_Type_size(handle, &bytes)) == MPI_ERR_TYPE);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void collectives(void) {
  int value = rank + 1, sum = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == size * (size + 1) / 2);
  MPI_Scan(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == value * (value + 1) / 2);

  struct {
    double value;
    int where;
  } mine = {rank == size - 1 ? -1.0 : rank, rank}, least;
  MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
  CHECK(least.value == -1.0 && least.where == size - 1);

  MPI_Op op;
  MPI_Datatype pair;
  double line[2] = {2, rank}, all[2], expected[2] = {1, 0};
  MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
  MPI_Type_commit(&pair);
  MPI_Op_create(compose, 0, &op);
  MPI_Allreduce(line, all, 1, pair, op, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r) {
    expected[1] += expected[0] * r;
    expected[0] *= 2;
  }
  CHECK(all[0] == expected[0] && all[1] == expected[1]);
  /* Scans of it: ranks before this one alone; a result for each rank. */
  double before[2] = {-1, -1}, *each = malloc(2 * sizeof(double) * (unsigned)size);
  MPI_Exscan(line, before, 1, pair, op, MPI_COMM_WORLD);
  expected[0] = 1;
  expected[1] = 0;
  for (int r = 0; r < rank; ++r) {
    expected[1] += expected[0] * r;
    expected[0] *= 2;
  }
  CHECK(rank == 0 ? before[0] == -1 : before[0] == expected[0] && before[1] == expected[1]);
  MPI_Request started;
  MPI_Iscan(line, all, 1, pair, op, MPI_COMM_WORLD, &started);
  MPI_Op_free(&op); /* what is under way keeps it */
  MPI_Wait(&started, MPI_STATUS_IGNORE);
  CHECK(all[0] == 2 * expected[0] && all[1] == expected[1] + expected[0] * rank);
  MPI_Op_create(compose, 0, &op);
  for (int r = 0; r < size; ++r) {
    each[2 * r] = 2;
    each[2 * r + 1] = rank + r;
  }
  MPI_Reduce_scatter_block(MPI_IN_PLACE, each, 1, pair, op, MPI_COMM_WORLD);
  expected[0] = 1;
  expected[1] = 0;
  for (int r = 0; r < size; ++r) {
    expected[1] += expected[0] * (r + rank);
    expected[0] *= 2;
  }
  CHECK(each[0] == expected[0] && each[1] == expected[1]);
  free(each);
  MPI_Type_free(&pair);

  /* Elements that are longer than those of the engine's folds. */
  MPI_Op long_op;
  MPI_Datatype column;
  MPI_Op_create(add_long, 1, &long_op);
  MPI_Type_contiguous(kLong, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  double *lot = malloc(2 * kLong * sizeof(double)), *lots = malloc(2 * kLong * sizeof(double));
  for (int i = 0; i < 2 * kLong; ++i) lot[i] = i + rank;
  MPI_Allreduce(lot, lots, 2, column, long_op, MPI_COMM_WORLD);
  for (int i = 0; i < 2 * kLong; ++i) CHECK(lots[i] == size * i + size * (size - 1) / 2);
  MPI_Scan(lot, lots, 2, column, long_op, MPI_COMM_WORLD);
  for (int i = 0; i < 2 * kLong; ++i) CHECK(lots[i] == (rank + 1) * i + rank * (rank + 1) / 2);
  free(lot);
  free(lots);
  MPI_Type_free(&column);
  MPI_Op_free(&long_op);
  MPI_Op_free(&op);

  int* gathered = malloc(sizeof(int) * (unsigned)size);
  MPI_Request request;
  gathered[rank] = rank * rank;
  MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, gathered, 1, MPI_INT, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int r = 0; r < size; ++r) CHECK(gathered[r] == r * r);

  int *counts = calloc((unsigned)size, sizeof(int)), *places = calloc((unsigned)size, sizeof(int)), total = 0;
  for (int r = 0; r < size; ++r) {
    counts[r] = r + 1;
    places[r] = total;
    total += counts[r];
  }
  int *uneven = calloc((unsigned)total, sizeof(int)), *own = calloc((unsigned)size + 1, sizeof(int));
  for (int i = 0; i <= rank; ++i) own[i] = rank;
  MPI_Gatherv(own, rank + 1, MPI_INT, uneven, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Bcast(uneven, total, MPI_INT, 0, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r) CHECK(uneven[places[r]] == r && uneven[places[r] + r] == r);
  MPI_Reduce_scatter(uneven, own, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(own[0] == size * rank);
  free(gathered);
  free(counts);
  free(places);
  free(uneven);
  free(own);
}

/* What a rank gives or takes may lie between the blocks of all. */
static void between_blocks(void) {
  int *all = calloc(2 * (unsigned)size, sizeof(int)), *ones = calloc((unsigned)size, sizeof(int));
  int *places = calloc((unsigned)size, sizeof(int)), *const own = &all[1];
  for (int r = 0; r < size; ++r) {
    ones[r] = 1;
    places[r] = 2 * r;
  }
  *own = 10 + rank;
  MPI_Allgatherv(own, 1, MPI_INT, all, ones, places, MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r) CHECK(all[2 * r] == 10 + r);
  CHECK(*own == 10 + rank);
  *own = 20 + rank;
  MPI_Gatherv(own, 1, MPI_INT, all, ones, places, MPI_INT, 0, MPI_COMM_WORLD);
  for (int r = 0; r < size; ++r) CHECK(all[2 * r] == (rank == 0 ? 20 : 10) + r);
  CHECK(*own == 20 + rank);
  *own = -1;
  MPI_Scatterv(all, ones, places, MPI_INT, own, 1, MPI_INT, 0, MPI_COMM_WORLD);
  CHECK(*own == 20 + rank);
  for (int r = 0; r < size; ++r) CHECK(all[2 * r] == (rank == 0 ? 20 : 10) + r);
  free(all);
  free(ones);
  free(places);
}

/* Requests that another thread of the program ends. */
static int query(void* state, MPI_Status* status) {
  (void)state;
  MPI_Status_set_elements(status, MPI_BYTE, 3);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
static int forget(void* state) {
  if (state != NULL) ++*(int*)state;
  return MPI_SUCCESS;
}
static int refuse(void* state, int complete) {
  (void)state;
  (void)complete;
  return MPI_SUCCESS;
}
static void* end(void* request) {
  MPI_Grequest_complete(*(MPI_Request*)request);
  return NULL;
}
static MPI_Request parts;
static void* ready(void* part) {
  MPI_Pready((int)(size_t)part, parts);
  return NULL;
}
static void threads(void) {
  pthread_t thread, two[2];
  MPI_Request both[2], general;
  MPI_Status status;
  int index = -1, count = 0, never = 0, in[2] = {-1, -1}, out[2] = {rank, rank + 1};
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  MPI_Irecv(&never, 1, MPI_INT, last, 70, MPI_COMM_WORLD, &both[0]);
  for (int way = 0; way < 2; ++way) {
    MPI_Grequest_start(query, forget, refuse, NULL, &general);
    both[1] = general;
    pthread_create(&thread, NULL, end, &general);
    if (way == 0) {
      MPI_Waitany(2, both, &index, &status);
      CHECK(index == 1 && both[1] == MPI_REQUEST_NULL);
    } else {
      MPI_Wait(&both[1], &status);
    }
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == 3);
    pthread_join(thread, NULL);
  }
  /* One that is freed ends when it is complete, too. */
  for (int freed_first = 0; freed_first < 2; ++freed_first) {
    int forgotten = 0;
    MPI_Grequest_start(query, forget, refuse, &forgotten, &general);
    both[1] = general;
    freed_first ? MPI_Request_free(&both[1]) : MPI_Grequest_complete(general);
    CHECK(forgotten == 0);
    freed_first ? MPI_Grequest_complete(general) : MPI_Request_free(&both[1]);
    CHECK(forgotten == 1 && both[1] == MPI_REQUEST_NULL);
  }
  MPI_Cancel(&both[0]);
  MPI_Waitany(2, both, &index, MPI_STATUS_IGNORE);
  CHECK(index == 0);
  MPI_Psend_init(out, 2, 1, MPI_INT, next, 71, MPI_COMM_WORLD, MPI_INFO_NULL, &parts);
  MPI_Precv_init(in, 2, 1, MPI_INT, last, 71, MPI_COMM_WORLD, MPI_INFO_NULL, &both[0]);
  for (int turn = 0; turn < 3; ++turn) {
    MPI_Start(&both[0]);
    MPI_Start(&parts);
    for (size_t i = 0; i < 2; ++i) pthread_create(&two[i], NULL, ready, (void*)i);
    MPI_Wait(&parts, MPI_STATUS_IGNORE);
    MPI_Wait(&both[0], MPI_STATUS_IGNORE);
    CHECK(in[0] == last && in[1] == last + 1);
    for (int i = 0; i < 2; ++i) pthread_join(two[i], NULL);
  }
  MPI_Request_free(&parts);
  MPI_Request_free(&both[0]);
}

/* More requests than a thread keeps, whose communicator and type are freed under way; their memory is used again. */
static void* wait_for(void* request) {
  MPI_Wait(request, MPI_STATUS_IGNORE);
  return NULL;
}
static void requests(void) {
  enum { kMany = 600 };
  static int in[kMany][3], out[kMany];
  static MPI_Request all[2 * kMany];
  static MPI_Status statuses[2 * kMany];
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  for (int turn = 0; turn < 4; ++turn) {
    MPI_Comm of;
    MPI_Datatype second;
    pthread_t thread;
    MPI_Comm_dup(MPI_COMM_WORLD, &of);
    MPI_Type_vector(2, 1, 2, MPI_SHORT, &second);
    MPI_Type_commit(&second);
    for (int i = 0; i < kMany; ++i) {
      in[i][0] = in[i][1] = in[i][2] = -1;
      out[i] = turn * 1000 + i;
      MPI_Irecv(in[i], i % 2 == 0 ? 1 : 2, i % 2 == 0 ? second : MPI_SHORT, last, i, of, &all[i]);
    }
    MPI_Type_free(&second);
    for (int i = kMany; i-- > 0;) MPI_Isend(&out[i], 2, MPI_SHORT, next, i, of, &all[kMany + i]);
    MPI_Comm_free(&of);
    pthread_create(&thread, NULL, wait_for, &all[turn]);
    pthread_join(thread, NULL);
    CHECK(all[turn] == MPI_REQUEST_NULL);
    MPI_Waitall(2 * kMany, all, statuses);
    for (int i = 0; i < kMany; ++i) {
      short came[6];
      memcpy(came, in[i], sizeof came);
      CHECK(came[0] == (short)out[i] && came[i % 2 == 0 ? 2 : 1] == 0 && came[i % 2 == 0 ? 1 : 2] == -1);
      CHECK(i == turn || (statuses[i].MPI_SOURCE == last && statuses[i].MPI_TAG == i));
    }
  }
}

static void communicators(void) {
  MPI_Comm half, copy, ring;
  int inside = 0, sum = 0, dims[1] = {size}, periods[1] = {1}, before = 0, after = 0, result = 0;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  MPI_Comm_rank(half, &inside);
  CHECK(inside == (size - 1 - rank) / 2);
  MPI_Comm_dup(half, &copy);
  MPI_Comm_compare(half, copy, &result);
  CHECK(result == MPI_CONGRUENT);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, copy);
  int expected = 0;
  for (int r = rank % 2; r < size; r += 2) expected += r;
  CHECK(sum == expected);
  MPI_Comm_free(&copy);
  MPI_Comm_free(&half);
  CHECK(half == MPI_COMM_NULL);

  /* To free one waits for no other rank: the last frees it when it hears that the others have. */
  const double began = MPI_Wtime();
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  if (rank == size - 1) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_free(&copy);
  if (rank < size - 1) MPI_Barrier(MPI_COMM_WORLD);
  CHECK(MPI_Wtime() - began < 4);

  MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
  MPI_Cart_shift(ring, 0, 1, &before, &after);
  CHECK(after == (rank + 1) % size && before == (rank + size - 1) % size);
  const int far = INT_MAX % size; /* the largest displacement */
  MPI_Cart_shift(ring, 0, INT_MAX, &before, &after);
  CHECK(after == (rank + far) % size && before == (rank + size - far) % size);
  MPI_Cart_shift(ring, 0, INT_MIN, &before, &after);
  CHECK(before == (rank + far + 1) % size && after == (rank + 2 * size - far - 1) % size);
  MPI_Cart_shift(ring, 0, 1, &before, &after);
  int from[2] = {-1, -1}, to[2] = {10 * rank, 10 * rank + 1};
  MPI_Neighbor_alltoall(to, 1, MPI_INT, from, 1, MPI_INT, ring);
  CHECK(from[0] == 10 * before + 1 && from[1] == 10 * after);
  MPI_Comm_free(&ring);

  /* What is not there says so. */
  char port[MPI_MAX_PORT_NAME];
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  extern int MPI_Open_port(MPI_Info, char*);
  CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_ERR_UNSUPPORTED_OPERATION);
  CHECK(class_of(MPI_Comm_rank(MPI_COMM_NULL, &inside)) == MPI_ERR_COMM);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

/* Libraries of Fortran convert by these; programs of other MPIs want the rest by name. */
static void names(void) {
  MPI_Fint in_fortran[sizeof(MPI_Status) / sizeof(MPI_Fint)];
  MPI_F08_status f08;
  MPI_Status status, again;
  int bytes = 0, count = 0;
  MPI_Sendrecv(&size, 1, MPI_INT, 0, 3, &bytes, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &status);
  MPI_Status_c2f(&status, in_fortran);
  MPI_Status_f2f08(in_fortran, &f08);
  MPI_Status_f082c(&f08, &again);
  MPI_Get_count(&again, MPI_INT, &count);
  CHECK(again.MPI_SOURCE == 0 && again.MPI_TAG == 3 && count == 1);
  memset(in_fortran, 0, sizeof in_fortran);
  MPI_Status_c2f08(&again, &f08);
  MPI_Status_f082f(&f08, in_fortran);
  MPI_Status_f2c(in_fortran, &again);
  MPI_Get_count(&again, MPI_INT, &count);
  CHECK(again.MPI_SOURCE == 0 && again.MPI_TAG == 3 && count == 1);
  CHECK(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
#ifdef RONDO_MPI_FACE_OPENMPI
  CHECK(MPI_Comm_f2c(0) == MPI_COMM_WORLD && MPI_Comm_f2c(1) == MPI_COMM_SELF && MPI_Comm_f2c(2) == MPI_COMM_NULL);
#endif
#ifdef MPI_2COMPLEX
  MPI_Type_size(MPI_2COMPLEX, &bytes);
  CHECK(bytes == 16);
#endif
  CHECK(MPIX_Query_cuda_support() == 0);
  int MPI_Register_datarep_c(const char*, void*, void*, void*, void*);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Register_datarep_c("own", NULL, NULL, NULL, NULL)) == MPI_ERR_UNSUPPORTED_OPERATION);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char** argv) {
  const char* wrong = argc > 1 ? argv[1] : "";
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(provided == MPI_THREAD_MULTIPLE);
  if (strcmp(wrong, "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, atoi(argv[2]));
  if (strcmp(wrong, "die") == 0 || strcmp(wrong, "die-return") == 0) {
    if (strcmp(wrong, "die-return") == 0) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD); /* all have come out of MPI_Init */
    if (rank == 1) _exit(0);
    printf("class %d\n", class_of(MPI_Barrier(MPI_COMM_WORLD)));
    fflush(stdout);
    _exit(0);
  }
  if (strcmp(wrong, "refuse") == 0) { /* rank 0 alone gives something wrong */
    const int places = rank == 0 ? size + 1 : size, whole = 0;
    MPI_Comm made;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &places, &whole, 0, &made);
  }
  if (wrong[0] != 0) MPI_Barrier(MPI_COMM_WORLD);
  messages();
  collectives();
  reduces_downwards();
  reduces_by_freed();
  between_blocks();
  threads();
  requests();
  communicators();
  names();
  printf("rank %d of %d: fine\n", rank, size);
  MPI_Finalize();
  return 0;
}
