/* Calls with mistakes end in an error whose class other MPIs give, too, and the program goes on. */

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/mpi/check.h"

static void null_outputs(void) {
  MPI_Comm own;
  MPI_Info info;
  MPI_Group group, *none = NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own); /* its handler is fatal: MPI_COMM_WORLD's stands in for that */
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Comm_size(MPI_COMM_WORLD, NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Comm_split(own, 0, 0, NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Comm_create(own, group, NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Irecv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Type_vector(1, 1, 1, MPI_INT, NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Type_size(MPI_INT, NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Group_union(group, group, none)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Group_translate_ranks(group, 1, NULL, group, NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Group_range_incl(group, 1, NULL, &group)) == MPI_ERR_ARG);
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  CHECK(class_of(MPI_Comm_rank(own, NULL)) == MPI_ERR_ARG);
  CHECK(MPI_Info_create_env(0, NULL, &info) == MPI_SUCCESS); /* an input */
  MPI_Info_free(&info);
  MPI_Group_free(&group);
  MPI_Comm_free(&own);
}

/* Ranges are compared with the group before they are counted out. */
static void ranges(void) {
  int all[1][3] = {{0, INT_MAX, 1}}, down[1][3] = {{0, INT_MIN, -1}}, far[1][3] = {{0, INT_MAX, INT_MAX}};
  MPI_Group group, made;
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Group_range_incl(group, 1, all, &made)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Group_range_excl(group, 1, all, &made)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Group_range_incl(group, 1, down, &made)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Group_range_incl(group, 1, far, &made)) == MPI_ERR_RANK);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  MPI_Group_free(&group);
}

static int refuse(MPI_Comm comm, int keyval, void* state, void* in, void* out, int* flag) {
  (void)comm, (void)keyval, (void)state, (void)in, (void)out, (void)flag;
  return MPI_ERR_OTHER;
}
static int free_again(MPI_Comm comm, int keyval, void* value, void* state) {
  (void)comm, (void)value, (void)state;
  return MPI_Comm_free_keyval(&keyval);
}

/* A call that failed leaves a null handle. */
static void null_handles(void) {
  MPI_Comm of, made = MPI_COMM_WORLD;
  int keyval, dims[1] = {size + 1}, periods[1] = {0};
  MPI_Comm_dup(MPI_COMM_SELF, &of);
  MPI_Comm_set_errhandler(of, MPI_ERRORS_RETURN);
  MPI_Comm_create_keyval(refuse, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
  MPI_Comm_set_attr(of, keyval, NULL);
  CHECK(MPI_Comm_dup(of, &made) != MPI_SUCCESS && made == MPI_COMM_NULL);
  made = MPI_COMM_WORLD;
  CHECK(MPI_Cart_create(of, 1, dims, periods, 0, &made) != MPI_SUCCESS && made == MPI_COMM_NULL);
  MPI_Comm_free_keyval(&keyval);
  MPI_Comm_free(&of);
}

/* Copies of attributes, and the original. The last rank's second copy fails. */
static int copies;
static int copy_one(void* in, void* out, int* flag) {
  ++copies;
  *flag = 1;
  *(void**)out = in;
  return MPI_SUCCESS;
}
static int copy_of_comm(MPI_Comm comm, int keyval, void* state, void* in, void* out, int* flag) {
  (void)comm, (void)keyval, (void)state;
  return copy_one(in, out, flag);
}
static int copy_of_type(MPI_Datatype type, int keyval, void* state, void* in, void* out, int* flag) {
  (void)type, (void)keyval, (void)state;
  return copy_one(in, out, flag);
}
static int delete_of_comm(MPI_Comm comm, int keyval, void* value, void* state) {
  (void)comm, (void)keyval, (void)value, (void)state;
  --copies;
  return MPI_SUCCESS;
}
static int delete_of_type(MPI_Datatype type, int keyval, void* value, void* state) {
  (void)type, (void)keyval, (void)value, (void)state;
  --copies;
  return MPI_SUCCESS;
}
static int refuse_on_last(MPI_Comm comm, int keyval, void* state, void* in, void* out, int* flag) {
  (void)comm, (void)keyval, (void)state, (void)in, (void)out;
  *flag = 0;
  return rank == size - 1 ? MPI_ERR_OTHER : MPI_SUCCESS;
}
static int refuse_of_type(MPI_Datatype type, int keyval, void* state, void* in, void* out, int* flag) {
  (void)type, (void)keyval, (void)state, (void)in, (void)out, (void)flag;
  return MPI_ERR_OTHER;
}
/* A copy function that fails on one rank is an error on all, and none keeps what was copied before. */
static void copies_of_none(void) {
  int counts, refuses;
  MPI_Comm of, made;
  MPI_Datatype type, none;
  MPI_Request request;
  MPI_Comm_create_keyval(copy_of_comm, delete_of_comm, &counts, NULL);
  MPI_Comm_create_keyval(refuse_on_last, MPI_COMM_NULL_DELETE_FN, &refuses, NULL);
  MPI_Comm_dup(MPI_COMM_WORLD, &of);
  MPI_Comm_set_errhandler(of, MPI_ERRORS_RETURN);
  MPI_Comm_set_attr(of, counts, NULL);
  MPI_Comm_set_attr(of, refuses, NULL);
  copies = 1;
  CHECK(class_of(MPI_Comm_dup(of, &made)) == MPI_ERR_OTHER && made == MPI_COMM_NULL);
  CHECK(copies == 1);
  CHECK(MPI_Comm_idup(of, &made, &request) == MPI_SUCCESS);
  CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_OTHER);
  CHECK((made == MPI_COMM_NULL) == (rank == size - 1));
  if (made != MPI_COMM_NULL) MPI_Comm_free(&made);
  CHECK(copies == 1);
  MPI_Comm_free(&of);
  CHECK(copies == 0);
  MPI_Comm_free_keyval(&counts);
  MPI_Comm_free_keyval(&refuses);

  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Type_create_keyval(copy_of_type, delete_of_type, &counts, NULL);
  MPI_Type_create_keyval(refuse_of_type, MPI_TYPE_NULL_DELETE_FN, &refuses, NULL);
  MPI_Type_dup(MPI_INT, &type);
  MPI_Type_set_attr(type, counts, NULL);
  MPI_Type_set_attr(type, refuses, NULL);
  copies = 1;
  CHECK(class_of(MPI_Type_dup(type, &none)) == MPI_ERR_OTHER && copies == 1);
  MPI_Type_free(&type);
  MPI_Type_free_keyval(&counts);
  MPI_Type_free_keyval(&refuses);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

/* A keyval may be freed again while attributes have it. */
static void keyval_twice(void) {
  MPI_Comm of;
  int keyval, same, other;
  MPI_Comm_dup(MPI_COMM_SELF, &of);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_again, &keyval, NULL);
  same = other = keyval;
  MPI_Comm_set_attr(of, keyval, NULL);
  CHECK(MPI_Comm_free_keyval(&keyval) == MPI_SUCCESS && keyval == MPI_KEYVAL_INVALID);
  CHECK(MPI_Comm_free_keyval(&same) == MPI_SUCCESS);
  MPI_Comm_free(&of);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Comm_free_keyval(&other)) == MPI_ERR_KEYVAL);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

/* A keyval is for one kind of object. */
static void keyval_of_another_kind(void) {
  int keyval, flag;
  void* value;
  MPI_Datatype type;
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Type_dup(MPI_INT, &type);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
  CHECK(class_of(MPI_Type_set_attr(type, keyval, NULL)) == MPI_ERR_KEYVAL);
  CHECK(class_of(MPI_Type_get_attr(type, keyval, &value, &flag)) == MPI_ERR_KEYVAL);
  CHECK(class_of(MPI_Type_free_keyval(&keyval)) == MPI_ERR_KEYVAL);
  CHECK(class_of(MPI_Win_free_keyval(&keyval)) == MPI_ERR_KEYVAL);
  CHECK(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL) == MPI_SUCCESS);
  CHECK(MPI_Comm_delete_attr(MPI_COMM_SELF, keyval) == MPI_SUCCESS);
  CHECK(MPI_Comm_free_keyval(&keyval) == MPI_SUCCESS);
  MPI_Type_free(&type);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static void types(void) {
  const char three[3] = {1, 2, 3};
  int spread[4] = {0, 0, 0, 0};
  MPI_Datatype second;
  MPI_Request request;
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Type_vector(2, 1, 2, MPI_INT, &second);
  MPI_Type_commit(&second);
  MPI_Isend(three, 3, MPI_CHAR, 0, 0, MPI_COMM_SELF, &request);
  CHECK(class_of(MPI_Recv(spread, 1, second, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE)) == MPI_ERR_TYPE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Type_free(&second);
  const int block = MPI_DISTRIBUTE_BLOCK, all = MPI_DISTRIBUTE_DFLT_DARG, one = 1, none = 0;
  CHECK(class_of(MPI_Type_create_darray(1, 0, 1, &one, &block, &all, &none, MPI_ORDER_C, MPI_INT, &second)) ==
        MPI_ERR_ARG);
  CHECK(class_of(MPI_Type_create_darray(1, 0, 1, &none, &block, &all, &one, MPI_ORDER_C, MPI_INT, &second)) ==
        MPI_ERR_ARG);
  CHECK(class_of(MPI_Reduce_local(spread, spread, 1, MPI_INT, MPI_SUM)) == MPI_ERR_BUFFER);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);

  /* A handle that was ended, and one that stands twice in a list. */
  {
    MPI_Request twice[2];
    int flag;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Isend(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &request);
    twice[0] = twice[1] = request;
    CHECK(class_of(MPI_Waitall(2, twice, MPI_STATUSES_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(twice[0] == MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Test(&request, &flag, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  }

  /* Nothing has any type. */
  MPI_Isend(NULL, 0, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF, &request);
  MPI_Recv(NULL, 0, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A neighbor that is no rank is an error on all ranks, also where one rank gives it. */
static void no_neighbors(void) {
  const int stray = rank == size - 1 ? size : rank, one = 1, less = -1;
  MPI_Comm made;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &stray, MPI_UNWEIGHTED, 0, NULL, MPI_UNWEIGHTED,
                                                MPI_INFO_NULL, 0, &made)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_UNWEIGHTED, 1, &stray, MPI_UNWEIGHTED,
                                                MPI_INFO_NULL, 0, &made)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &one, &stray, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                       &made)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Graph_create(MPI_COMM_WORLD, 1, &one, &size, 0, &made)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Graph_create(MPI_COMM_WORLD, 1, &less, &size, 0, &made)) == MPI_ERR_ARG);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* What one rank alone gives that is wrong is an error on all ranks. */
static void mistakes_of_one(void) {
  const int wrong = rank == size - 1, whole = 0, one = 1, less = wrong ? -1 : 0, places = wrong ? size + 1 : size;
  int memory, *allocated;
  MPI_Comm made;
  MPI_Win win;
  MPI_File file;
  MPI_Group all;
  MPI_Info kept, freed;
  MPI_Request request;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Info_create(&kept);
  freed = kept;
  MPI_Info_free(&kept);
  const MPI_Info info = wrong ? freed : MPI_INFO_NULL;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Comm_create(MPI_COMM_WORLD, wrong ? MPI_GROUP_NULL : all, &made)) == MPI_ERR_GROUP);
  CHECK(class_of(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &made)) == MPI_ERR_INFO && made == MPI_COMM_NULL);
  CHECK(MPI_Comm_idup_with_info(MPI_COMM_WORLD, info, &made, &request) == MPI_SUCCESS);
  CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_INFO);
  CHECK((made == MPI_COMM_NULL) == wrong);
  if (made != MPI_COMM_NULL) MPI_Comm_free(&made);
  CHECK(class_of(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &made)) == MPI_ERR_INFO);
  CHECK(class_of(MPI_Cart_create(MPI_COMM_WORLD, 1, &places, &whole, 0, &made)) == MPI_ERR_DIMS);
  CHECK(class_of(MPI_Graph_create(MPI_COMM_WORLD, less, &whole, &whole, 0, &made)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, less, &one, MPI_UNWEIGHTED, 0, NULL, MPI_UNWEIGHTED,
                                                MPI_INFO_NULL, 0, &made)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &whole, &less, &whole, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                       &made)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Win_create(&memory, sizeof memory, 1, info, MPI_COMM_WORLD, &win)) == MPI_ERR_INFO);
  CHECK(class_of(MPI_File_open(MPI_COMM_WORLD, "none", MPI_MODE_RDONLY, info, &file)) == MPI_ERR_INFO);
  CHECK(class_of(MPI_Comm_split(MPI_COMM_WORLD, wrong ? -1 : 0, 0, &made)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Comm_split_type(MPI_COMM_WORLD, wrong ? -7 : MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made)) ==
        MPI_ERR_ARG);
  CHECK(class_of(MPI_Intercomm_create(MPI_COMM_WORLD, 0, rank == 0 ? MPI_COMM_WORLD : MPI_COMM_NULL, size, 0, &made)) ==
        MPI_ERR_RANK);
  CHECK(class_of(MPI_Intercomm_create(MPI_COMM_WORLD, 0, MPI_COMM_NULL, 0, 0, &made)) == MPI_ERR_COMM);
  CHECK(class_of(MPI_Win_create(&memory, wrong ? -1 : (int)sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win)) ==
        MPI_ERR_SIZE);
  CHECK(class_of(MPI_Win_allocate(8, wrong ? 0 : 1, MPI_INFO_NULL, MPI_COMM_WORLD, &allocated, &win)) == MPI_ERR_DISP);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Group_free(&all);
}

/* What 64 bits do not hold is an error, and nothing is sent, made or written. */
static void too_large(void) {
  const MPI_Count many = (MPI_Count)1 << 61;
  const int whole[1] = {10}, most[1] = {INT_MAX};
  double x = 1, memory[1] = {2};
  char packed[sizeof x];
  MPI_Count position = 0;
  MPI_Datatype type;
  MPI_Request request;
  MPI_Win win;
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Send_c(&x, many, MPI_DOUBLE, 0, 0, MPI_COMM_SELF)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Recv_c(&x, many, MPI_DOUBLE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Psend_init(&x, 8, many, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Bcast_c(&x, many, MPI_DOUBLE, 0, MPI_COMM_SELF)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Pack_c(&x, many, MPI_DOUBLE, packed, sizeof packed, &position, MPI_COMM_SELF)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Type_contiguous_c(many, MPI_DOUBLE, &type)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Type_create_hvector(3, 1, (MPI_Aint)(2 * many), MPI_INT, &type)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Type_create_subarray(1, whole, most, most, MPI_ORDER_C, MPI_INT, &type)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Win_create_c(memory, sizeof memory, (MPI_Aint)1 << 32, MPI_INFO_NULL, MPI_COMM_SELF, &win)) ==
        MPI_ERR_DISP);
  MPI_Win_create(memory, sizeof memory, sizeof x, MPI_INFO_NULL, MPI_COMM_SELF, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  MPI_Win_fence(0, win);
  CHECK(class_of(MPI_Put(&x, 1, MPI_DOUBLE, 0, (MPI_Aint)many, 1, MPI_DOUBLE, win)) == MPI_ERR_RMA_RANGE);
  CHECK(class_of(MPI_Put(&x, 1, MPI_DOUBLE, 0, INTPTR_MAX / 8, 1, MPI_DOUBLE, win)) == MPI_ERR_RMA_RANGE);
  CHECK(class_of(MPI_Put_c(&x, many, MPI_DOUBLE, 0, 0, many, MPI_DOUBLE, win)) == MPI_ERR_COUNT);
  MPI_Win_fence(0, win);
  CHECK(memory[0] == 2);
  MPI_Win_free(&win);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

/* A partitioned message that there is no memory to pack ends in an error of the request, which can be started again. */
static void no_memory_to_pack(void) {
  char x = 0;
  MPI_Datatype padded;
  MPI_Request request;
  MPI_Type_create_resized(MPI_BYTE, 0, 2, &padded);
  MPI_Type_commit(&padded);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Psend_init(&x, 1, INT64_MAX, padded, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request);
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(MPI_Start(&request) == MPI_SUCCESS);
    CHECK(MPI_Pready(0, request) == MPI_SUCCESS);
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_NO_MEM);
  }
  MPI_Request_free(&request);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  MPI_Type_free(&padded);
}

/* The receive of a call whose send cannot start goes on: it takes the next message, into memory that is still there. */
static void no_memory_to_send(void) {
  static int in[3] = {-1, -1, -1}; /* lives on: the receive may end behind this function */
  int out = 5, next = 6;
  MPI_Datatype padded, spread;
  MPI_Request request;
  MPI_Type_create_resized(MPI_BYTE, 0, 2, &padded);
  MPI_Type_commit(&padded);
  MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
  MPI_Type_commit(&spread);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Isendrecv_c(&out, INT64_MAX, padded, 0, 1, in, 2, spread, 0, 2, MPI_COMM_SELF, &request)) ==
        MPI_ERR_NO_MEM);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  MPI_Type_free(&padded);
  MPI_Type_free(&spread);
  const int both[2] = {7, 8};
  MPI_Send(both, 2, MPI_INT, 0, 2, MPI_COMM_SELF);
  MPI_Sendrecv(&next, 1, MPI_INT, 0, 2, &out, 1, MPI_INT, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  CHECK(out == 6);
#ifndef __SANITIZE_THREAD__ /* a thread of the library unpacks, and nothing tells when */
  const double until = MPI_Wtime() + 20;
  while (__atomic_load_n(&in[2], __ATOMIC_ACQUIRE) != 8 && MPI_Wtime() < until) continue;
  CHECK(in[0] == 7 && in[1] == -1 && in[2] == 8);
#endif
}

/* Ranks that swap two ops: a warning, and each rank folds by its own. */
static void swapped_ops(void) {
  double x = rank, least = 0, most = 0;
  MPI_Request request;
  MPI_Reduce(&x, &most, 1, MPI_DOUBLE, rank == 0 ? MPI_MAX : MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Reduce(&x, &least, 1, MPI_DOUBLE, rank == 0 ? MPI_MIN : MPI_MAX, 0, MPI_COMM_WORLD);
  CHECK(rank > 0 || (least == 0 && most == size - 1));
  MPI_Iallreduce(&rank, &size, 0, MPI_INT, rank == 0 ? MPI_SUM : MPI_PROD, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A receive may be cancelled before, while and after its sender frees the communicator. */
static void cancel_beside_free(void) {
  const double until = MPI_Wtime() + 0.1;
  MPI_Comm of;
  MPI_Comm_dup(MPI_COMM_WORLD, &of);
  while (rank == 0 && MPI_Wtime() < until) {
    MPI_Request request;
    MPI_Status status;
    int flag = 0, never;
    MPI_Irecv(&never, 1, MPI_INT, 1, 0, of, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
  }
  MPI_Comm_free(&of);
}

/* A program that frees no communicator is told so before its memory is full, on all ranks if one has too many. */
static void too_many(void) {
  enum { kMost = 10000 };
  const int whole = 0, both[2] = {0, 1}, ends[2] = {0, 0};
  MPI_Comm *made = malloc(kMost * sizeof *made), more, cart, part, inter;
  MPI_Group all;
  MPI_Request request;
  int count = 0;
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &whole, 0, &cart);
  if (size > 1) {
    MPI_Comm_split(MPI_COMM_WORLD, rank != 0, 0, &part);
    MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, rank == 0, 0, &inter);
  }
  while (rank == 0 && count < kMost && MPI_Comm_dup(MPI_COMM_SELF, &made[count]) == MPI_SUCCESS) ++count;
  CHECK(rank != 0 || (count >= 2000 && count < kMost));
  CHECK(class_of(MPI_Comm_dup(MPI_COMM_WORLD, &more)) == MPI_ERR_OTHER && more == MPI_COMM_NULL);
  CHECK(class_of(MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &more)) == MPI_ERR_OTHER);
  CHECK(class_of(MPI_Comm_create(MPI_COMM_WORLD, all, &more)) == MPI_ERR_OTHER);
  CHECK(class_of(MPI_Comm_create_group(MPI_COMM_WORLD, all, 0, &more)) == MPI_ERR_OTHER);
  CHECK(class_of(MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &whole, 0, &more)) == MPI_ERR_OTHER);
  CHECK(class_of(MPI_Cart_sub(cart, &size, &more)) == MPI_ERR_OTHER);
  CHECK(class_of(MPI_Graph_create(MPI_COMM_WORLD, 1, both + 1, ends, 0, &more)) == MPI_ERR_OTHER);
  CHECK(class_of(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_UNWEIGHTED, 0, NULL, MPI_UNWEIGHTED,
                                                MPI_INFO_NULL, 0, &more)) == MPI_ERR_OTHER);
  CHECK(size == 1 || class_of(MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, rank == 0, 0, &more)) == MPI_ERR_OTHER);
  CHECK(size == 1 || class_of(MPI_Intercomm_merge(inter, rank, &more)) == MPI_ERR_OTHER);
  if (rank == 0) {
    MPI_Comm_idup(MPI_COMM_SELF, &more, &request);
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_OTHER);
  }
  while (count > 0) MPI_Comm_free(&made[--count]);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &more) == MPI_SUCCESS);
  MPI_Comm_free(&more);
  MPI_Comm_free(&cart);
  if (size > 1) {
    MPI_Comm_free(&inter);
    MPI_Comm_free(&part);
  }
  MPI_Group_free(&all);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  free(made);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  null_outputs();
  ranges();
  null_handles();
  copies_of_none();
  keyval_twice();
  keyval_of_another_kind();
  types();
  no_neighbors();
  mistakes_of_one();
  too_large();
  no_memory_to_pack();
  no_memory_to_send();
  swapped_ops();
  if (size > 1) cancel_beside_free();
  too_many();
  printf("rank %d of %d: fine\n", rank, size);
  MPI_Finalize();
  return 0;
}
