/* What ranks may do in different orders, and what must be true in each: communicators freed, persistent and partitioned
   requests started, calls that return at once; errors and their texts; sessions opened again. Prints "rank R of N:
   fine". */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/check.h"

enum { kMany = 100, kThreads = 4, kTimes = 20 };

static void frees(void) {
  MPI_Comm made[kMany];
  double began;
  for (int i = 0; i < kMany; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &made[i]);
  began = MPI_Wtime();
  for (int i = 0; i < kMany; ++i) MPI_Comm_free(&made[rank % 2 == 0 ? i : kMany - 1 - i]);
  CHECK(MPI_Wtime() - began < 4);
  /* One rank frees all of them before the others free one. */
  for (int i = 0; i < kMany; ++i) MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &made[i]);
  for (int i = 0; rank == 0 && i < kMany; ++i) MPI_Comm_free(&made[i]);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; rank != 0 && i < kMany; ++i) MPI_Comm_free(&made[i]);
}

/* Also of what was merged of two groups. */
static void frees_of_groups(void) {
  MPI_Comm half, inter, merged;
  double began;
  if (size == 1) return;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter);
  MPI_Intercomm_merge(inter, rank % 2, &merged);
  began = MPI_Wtime();
  if (rank != 0) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_free(&merged);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
  if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
  CHECK(MPI_Wtime() - began < 4);
}

static MPI_Comm own[kThreads];
static void* churn(void* of) {
  for (int i = 0; i < kTimes; ++i) {
    MPI_Comm made;
    MPI_Comm_dup(*(MPI_Comm*)of, &made);
    MPI_Barrier(made);
    MPI_Comm_free(&made);
  }
  return NULL;
}
static void frees_by_threads(void) {
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &own[i]);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, churn, &own[i]);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < kThreads; ++i) MPI_Comm_free(&own[i]);
}

/* A thread waits in a message whose communicator and type another thread frees: the call goes on. That it waits is
   known by way of another process, an order that the thread sanitizer does not see. */
#ifdef __SANITIZE_THREAD__
enum { kSeesProcesses = 0 };
#else
enum { kSeesProcesses = 1 };
#endif
static MPI_Comm freed;
static MPI_Datatype spread;
static void* wait_in_message(void* in) {
  MPI_Sendrecv(&rank, 1, MPI_INT, 1, 1, in, 3, spread, 1, 2, freed, MPI_STATUS_IGNORE);
  return NULL;
}
static void frees_beside_wait(void) {
  int in[6] = {0, 0, 0, 0, 0, 0}, token = 0;
  const int out[3] = {1, 2, 3};
  MPI_Comm_dup(MPI_COMM_WORLD, &freed);
  if (rank == 0) {
    pthread_t waits;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
    MPI_Type_commit(&spread);
    pthread_create(&waits, NULL, wait_in_message, in);
    MPI_Recv(&token, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* its message has come: it waits */
    MPI_Type_free(&spread);
    MPI_Comm_free(&freed);
    MPI_Send(&token, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
    pthread_join(waits, NULL);
    for (int i = 0; i < 6; ++i) CHECK(in[i] == (i % 2 == 0 ? out[i / 2] : 0));
  } else {
    if (rank == 1) {
      MPI_Recv(&token, 1, MPI_INT, 0, 1, freed, MPI_STATUS_IGNORE);
      MPI_Send(&token, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
      MPI_Recv(&token, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(out, 3, MPI_INT, 0, 2, freed);
    }
    MPI_Comm_free(&freed);
  }
}

/* Two threads make communicators of the same ranks, on each second rank in the other order: the tag, or else what they
   are made of, says which belong together. */
static MPI_Group everyone;
static MPI_Comm half[2], bridge[2];
static int way;
static void* make_tagged(void* thread) {
  const int tag = (int)(size_t)thread;
  const char name[2] = {(char)('a' + tag), 0};
  int least = 0, most = 0;
  MPI_Comm made, merged;
  if (way == 0) MPI_Comm_create_group(MPI_COMM_WORLD, everyone, tag, &made);
  if (way == 1) MPI_Comm_create_from_group(everyone, name, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made);
  if (way == 2) MPI_Intercomm_create(half[tag], 0, bridge[tag], 1 - rank % 2, 0, &made);
  if (way == 2) {
    MPI_Intercomm_merge(made, rank % 2, &merged);
    MPI_Comm_free(&made);
    made = merged;
  }
  MPI_Allreduce(&tag, &least, 1, MPI_INT, MPI_MIN, made);
  MPI_Allreduce(&tag, &most, 1, MPI_INT, MPI_MAX, made);
  CHECK(least == tag && most == tag);
  MPI_Comm_free(&made);
  return NULL;
}
static void tags_of_threads(void) {
  MPI_Comm_group(MPI_COMM_WORLD, &everyone);
  for (int i = 0; i < 2; ++i) {
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half[i]);
    MPI_Comm_dup(MPI_COMM_WORLD, &bridge[i]);
  }
  for (way = 0; way < (size > 1 ? 3 : 2); ++way) {
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
      pthread_create(&threads[i], NULL, make_tagged, (void*)(size_t)(i ^ (rank % 2)));
      const double until = MPI_Wtime() + 0.02; /* it is in its call by then */
      while (MPI_Wtime() < until) continue;
    }
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < 2; ++i) MPI_Comm_free(&half[i]), MPI_Comm_free(&bridge[i]);
  MPI_Group_free(&everyone);
}

/* Rank 0 starts its own last, the others send to it between. */
static void idups(void) {
  MPI_Comm made[2];
  MPI_Request requests[2];
  int token = rank, sum = 0;
  for (int r = 1; rank == 0 && r < size; ++r) {
    MPI_Recv(&token, 1, MPI_INT, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Comm_idup(MPI_COMM_WORLD, &made[0], &requests[0]);
  MPI_Comm_idup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &made[1], &requests[1]);
  if (rank != 0) MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < 2; ++i) {
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, made[i]);
    CHECK(sum == size * (size - 1) / 2);
    MPI_Comm_free(&made[i]);
  }
}

static void flushes(void) {
  enum { kBytes = 1 << 22 };
  int bytes = kBytes + MPI_BSEND_OVERHEAD, token = 0;
  char *data = calloc(1, kBytes), *room = malloc((size_t)bytes);
  if (rank == 0 && size > 1) {
    MPI_Request request;
    MPI_Buffer_attach(room, bytes);
    MPI_Bsend(data, kBytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Buffer_iflush(&request);
    MPI_Send(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&room, &bytes);
  } else if (rank == 1) {
    MPI_Recv(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(data, kBytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  free(data);
  free(room);
}

/* A thread waits in MPI_Buffer_detach for a message that its receiver comes to after one that another thread sends. */
static _Atomic int detaches = 0;
static void* detach(void* room) {
  int bytes;
  detaches = 1;
  MPI_Buffer_detach(&room, &bytes);
  return NULL;
}
static void sends_beside_detach(void) {
  enum { kBytes = 1 << 22 };
  int bytes = kBytes + MPI_BSEND_OVERHEAD, token = 7;
  char *data = calloc(1, kBytes), *room = malloc((size_t)bytes), small[1024];
  void* detached;
  MPI_Comm other;
  pthread_t thread;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  if (rank == 0 && size > 1) {
    MPI_Buffer_attach(room, bytes);
    MPI_Comm_attach_buffer(other, small, sizeof small);
    MPI_Bsend(data, kBytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    pthread_create(&thread, NULL, detach, NULL);
    while (!detaches) continue;
    const double until = MPI_Wtime() + 0.05; /* it waits by then */
    while (MPI_Wtime() < until) continue;
    MPI_Bsend(&token, 1, MPI_INT, 1, 0, other);
    pthread_join(thread, NULL);
    MPI_Comm_detach_buffer(other, &detached, &bytes);
  } else if (rank == 1) {
    MPI_Recv(&token, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
    CHECK(token == 7);
    MPI_Recv(data, kBytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&other);
  free(data);
  free(room);
}

/* A communicator, with what it has attached or not, is freed before the message that was sent there by a buffer is
   received. */
static void sends_of_freed(void) {
  enum { kBytes = 1 << 22 };
  for (int of_comm = 0; of_comm < 2 && size > 1; ++of_comm) {
    int bytes = kBytes + MPI_BSEND_OVERHEAD, token = 0;
    char *data = malloc(kBytes), *room = malloc((size_t)bytes), *detached;
    MPI_Comm of;
    MPI_Comm_dup(MPI_COMM_WORLD, &of);
    memset(data, rank == 0 ? 7 : 0, kBytes);
    if (rank == 0) {
      of_comm ? MPI_Comm_attach_buffer(of, room, bytes) : MPI_Buffer_attach(room, bytes);
      MPI_Bsend(data, kBytes, MPI_BYTE, 1, 0, of);
      MPI_Comm_free(&of);
      MPI_Send(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
      MPI_Recv(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (!of_comm) MPI_Buffer_detach(&detached, &bytes);
    } else {
      if (rank == 1) {
        MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(data, kBytes, MPI_BYTE, 0, 0, of, MPI_STATUS_IGNORE);
        MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        for (int i = 0; i < kBytes; ++i) CHECK(data[i] == 7);
      }
      MPI_Comm_free(&of);
    }
    free(data);
    free(room);
  }
}

/* A function of the program waits for a lock of the program, inside of a call that makes progress. The thread that has
   the lock makes the same call meanwhile, which returns. */
static pthread_mutex_t programs = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int has_lock, in_function, sent_to_self;
static void add_locked(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  in_function = 1;
  pthread_mutex_lock(&programs);
  pthread_mutex_unlock(&programs);
  for (int i = 0; i < *count; ++i) ((int*)inout)[i] += ((int*)in)[i];
}
static void send_to_self(void) {
  if (++sent_to_self <= 2000) MPI_Bsend(&rank, 1, MPI_INT, 0, 0, MPI_COMM_SELF); /* the buffer has room for so many */
}
static void* send_with_lock(void* none) {
  pthread_mutex_lock(&programs);
  has_lock = 1;
  while (!in_function) continue;
  send_to_self();
  pthread_mutex_unlock(&programs);
  return none;
}
static void locks_of_functions(void) {
  enum { kRoom = 1 << 20, kTurns = 10 };
  char* room = malloc(kRoom);
  int bytes = kRoom, in, one = 1, sum;
  MPI_Op op;
  MPI_Request request;
  MPI_Op_create(add_locked, 1, &op);
  MPI_Buffer_attach(room, bytes);
  for (int turn = 0; turn < kTurns; ++turn) {
    pthread_t thread;
    has_lock = in_function = sent_to_self = 0;
    pthread_create(&thread, NULL, send_with_lock, NULL);
    while (!has_lock) continue;
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, &request);
    while (!in_function) send_to_self();
    pthread_join(thread, NULL);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == size);
    for (int sent = sent_to_self < 2000 ? sent_to_self : 2000; sent > 0; --sent) {
      MPI_Recv(&in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    }
  }
  MPI_Buffer_detach(&room, &bytes);
  MPI_Op_free(&op);
  free(room);
}

static void persistent(void) {
  int in[2] = {rank + 1, 10 * (rank + 1)}, out[2], all = size * (size + 1) / 2;
  MPI_Request requests[2];
  for (int i = 0; i < 2; ++i) {
    MPI_Allreduce_init(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]);
  }
  for (int turn = 0; turn < 10; ++turn) {
    out[0] = out[1] = 0;
    MPI_Start(&requests[(rank + turn) % 2]);
    MPI_Start(&requests[(rank + turn + 1) % 2]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(out[0] == all && out[1] == 10 * all);
  }
  for (int i = 0; i < 2; ++i) MPI_Request_free(&requests[i]);
}

/* Two of one tag, the last one first; of a type with gaps, whose data is there as soon as it is said to be. */
static void partitions(void) {
  enum { kParts = 2, kInts = 4 };
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  int out[2][2 * kParts * kInts], in[2][2 * kParts * kInts], flag;
  MPI_Datatype every, padded;
  MPI_Request sends[2], receives[2];
  MPI_Status status;
  if (size == 1) return;
  MPI_Type_vector(kInts, 1, 2, MPI_INT, &every);
  MPI_Type_create_resized(every, 0, 2 * kInts * sizeof(int), &padded);
  MPI_Type_commit(&padded);
  for (int i = 0; i < 2; ++i) {
    MPI_Psend_init(out[i], kParts, 1, padded, next, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &sends[i]);
    MPI_Precv_init(in[i], kParts, 1, padded, last, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &receives[i]);
  }
  for (int turn = 0; turn < 3; ++turn) {
    memset(in, 0, sizeof in);
    MPI_Startall(2, receives);
    for (int i = 1; i >= 0; --i) {
      for (int k = 0; k < 2 * kParts * kInts; ++k) out[i][k] = 1000 * rank + 100 * turn + 10 * i + 1;
      MPI_Start(&sends[i]);
      MPI_Pready_range(0, kParts - 1, sends[i]);
    }
    for (int i = 0; i < 2; ++i) {
      for (int part = 0; part < kParts; ++part) {
        for (flag = 0; !flag;) MPI_Parrived(receives[i], part, &flag);
      }
      for (int k = 0; k < 2 * kParts * kInts; k += 2) CHECK(in[i][k] == 1000 * last + 100 * turn + 10 * i + 1);
      MPI_Wait(&receives[i], &status);
      CHECK(status.MPI_SOURCE == last && status.MPI_TAG == 7);
    }
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
  }
  for (int i = 0; i < 2; ++i) MPI_Request_free(&sends[i]), MPI_Request_free(&receives[i]);
  MPI_Type_free(&every);
  MPI_Type_free(&padded);
}

/* Parts for this rank itself: no other call meets them, and two of one tag meet in the order in which they were made.
 */
static void parts_to_self(MPI_Comm comm) {
  int out[2] = {10, 20}, in[2] = {0, 0}, plain = 30, came = 0, flag = 1;
  MPI_Request sends[2], receives[2];
  for (int i = 0; i < 2; ++i) MPI_Psend_init(&out[i], 1, 1, MPI_INT, rank, 7, comm, MPI_INFO_NULL, &sends[i]);
  for (int i = 0; i < 2; ++i) MPI_Precv_init(&in[i], 1, 1, MPI_INT, rank, 7, comm, MPI_INFO_NULL, &receives[i]);
  for (int turn = 0; turn < 2; ++turn) {
    MPI_Startall(2, sends);
    for (int i = 0; i < 2; ++i) MPI_Pready(0, sends[i]);
    if (turn == 1) MPI_Startall(2, receives);
    MPI_Iprobe(rank, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Sendrecv(&plain, 1, MPI_INT, rank, 7, &came, 1, MPI_INT, rank, 7, comm, MPI_STATUS_IGNORE);
    CHECK(came == 30);
    if (turn == 0) MPI_Start(&receives[1]), MPI_Start(&receives[0]);
    MPI_Waitall(2, receives, MPI_STATUSES_IGNORE);
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
    CHECK(in[0] == 10 && in[1] == 20);
    in[0] = in[1] = 0;
  }
  for (int i = 0; i < 2; ++i) MPI_Request_free(&sends[i]), MPI_Request_free(&receives[i]);
}

/* A thread asks whether parts have come while another one waits for them: no before they are sent, and their data is
   there after a yes. */
static void* wait_for_parts(void* receive) {
  MPI_Wait(receive, MPI_STATUS_IGNORE);
  return NULL;
}
static void asks_beside_wait(void) {
  enum { kParts = 2, kTurns = 20 };
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  int out[2 * kParts], in[2 * kParts], flag;
  MPI_Datatype padded;
  MPI_Request sends, receives;
  MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &padded);
  MPI_Type_commit(&padded);
  MPI_Psend_init(out, kParts, 1, padded, next, 8, MPI_COMM_WORLD, MPI_INFO_NULL, &sends);
  MPI_Precv_init(in, kParts, 1, padded, last, 8, MPI_COMM_WORLD, MPI_INFO_NULL, &receives);
  for (int turn = 0; turn < kTurns; ++turn) {
    pthread_t thread;
    for (int k = 0; k < 2 * kParts; ++k) in[k] = -1, out[k] = 100 * turn + rank;
    MPI_Start(&receives);
    MPI_Start(&sends);
    pthread_create(&thread, NULL, wait_for_parts, &receives);
    const double until = MPI_Wtime() + 0.01; /* it waits by then */
    while (MPI_Wtime() < until) {
      MPI_Parrived(receives, turn % kParts, &flag);
      CHECK(!flag);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Pready_range(0, kParts - 1, sends);
    for (flag = 0; !flag;) MPI_Parrived(receives, turn % kParts, &flag);
    for (int k = 0; k < 2 * kParts; k += 2) CHECK(in[k] == 100 * turn + last && in[k + 1] == -1);
    pthread_join(thread, NULL);
    MPI_Wait(&sends, MPI_STATUS_IGNORE);
  }
  MPI_Request_free(&sends);
  MPI_Request_free(&receives);
  MPI_Type_free(&padded);
}

static int code, order[4], gone = 0;
static int refuse(MPI_Comm comm, int key, void* extra, void* in, void* out, int* flag) {
  (void)comm, (void)key, (void)extra, (void)in, (void)out;
  *flag = 0;
  return code;
}
static int note(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)extra;
  order[gone++] = (int)(MPI_Aint)value;
  return MPI_SUCCESS;
}

static void attributes(void) {
  const int set[3] = {2, 0, 1};
  int keys[3], key, error_class, length, value = 1;
  char text[MPI_MAX_ERROR_STRING];
  MPI_Comm from, to;
  MPI_Comm_dup(MPI_COMM_SELF, &from);
  for (int i = 0; i < 3; ++i) MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, note, &keys[i], NULL);
  for (int i = 0; i < 3; ++i) MPI_Comm_set_attr(from, keys[set[i]], (void*)(MPI_Aint)(i + 1));
  MPI_Comm_free(&from);
  CHECK(gone == 3 && order[0] == 3 && order[1] == 2 && order[2] == 1);

  MPI_Add_error_class(&error_class);
  MPI_Add_error_code(error_class, &code);
  MPI_Add_error_string(code, "mine");
  MPI_Comm_dup(MPI_COMM_SELF, &from);
  MPI_Comm_set_errhandler(from, MPI_ERRORS_RETURN);
  MPI_Comm_create_keyval(refuse, MPI_COMM_NULL_DELETE_FN, &key, NULL);
  MPI_Comm_set_attr(from, key, &value);
  CHECK(MPI_Comm_dup(from, &to) == code);
  MPI_Error_string(code, text, &length);
  CHECK(strcmp(text, "mine") == 0);
  MPI_Comm_free(&from);
}

static int count_delete(MPI_Datatype type, int key, void* value, void* extra) {
  (void)type, (void)key, (void)extra;
  ++*(int*)value;
  return MPI_SUCCESS;
}
/* What a type is made of comes back without attributes: they are of the original alone. */
static void attributes_of_parts(void) {
  int key, one = 1, deleted = 0, flag = 1;
  void* value;
  MPI_Aint none;
  MPI_Datatype part, whole, found;
  MPI_Type_create_keyval(MPI_TYPE_DUP_FN, count_delete, &key, NULL);
  MPI_Type_contiguous(2, MPI_INT, &part);
  MPI_Type_set_attr(part, key, &deleted);
  MPI_Type_contiguous(3, part, &whole);
  MPI_Type_get_contents(whole, 1, 0, 1, &one, &none, &found);
  MPI_Type_get_attr(found, key, &value, &flag);
  CHECK(!flag);
  MPI_Type_free(&found);
  CHECK(deleted == 0);
  MPI_Type_free(&part);
  CHECK(deleted == 1);
  MPI_Type_free(&whole);
  MPI_Type_free_keyval(&key);
}

/* Threads set what they like of one communicator and one info at once. */
static MPI_Info info;
static void* set_own(void* thread) {
  const MPI_Aint number = (MPI_Aint)thread;
  const char key[] = {'k', (char)('0' + number), 0};
  const char* const names[2] = {"a name that no string keeps in itself", "another name that no string keeps in itself"};
  for (int i = 0; i < 500; ++i) {
    int keyval, length, flag = 0;
    char name[MPI_MAX_OBJECT_NAME], text[MPI_MAX_INFO_VAL + 1];
    void* value;
    MPI_Errhandler handler;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, (void*)(number + i));
    MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &flag);
    CHECK(flag && (MPI_Aint)value == number + i);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
    MPI_Comm_free_keyval(&keyval);
    MPI_Info_set(info, key, names[i % 2]);
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, text, &flag);
    CHECK(flag && strcmp(text, names[i % 2]) == 0);
    MPI_Info_delete(info, key);
    MPI_Comm_set_name(MPI_COMM_SELF, names[i % 2]);
    MPI_Comm_get_name(MPI_COMM_SELF, name, &length);
    CHECK(strcmp(name, names[0]) == 0 || strcmp(name, names[1]) == 0);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, i % 2 == 0 ? MPI_ERRORS_RETURN : MPI_ERRORS_ARE_FATAL);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &handler);
    CHECK(handler == MPI_ERRORS_RETURN || handler == MPI_ERRORS_ARE_FATAL);
  }
  return NULL;
}
static void sets_by_threads(void) {
  pthread_t threads[kThreads];
  MPI_Info_create(&info);
  for (size_t i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, set_own, (void*)i);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  MPI_Info_free(&info);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static void errors(void) {
  int in[4] = {0}, bytes = 0;
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  char small = (char)(rank + 1), most = 0;
  MPI_Status status;
  MPI_Request request;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* also of what belongs to no communicator */
  CHECK(class_of(MPI_Type_size(MPI_DATATYPE_NULL, &bytes)) == MPI_ERR_TYPE);
  CHECK(class_of(MPI_Reduce_local(MPI_IN_PLACE, in, 1, MPI_INT, MPI_SUM)) == MPI_ERR_BUFFER);
  CHECK(class_of(MPI_Reduce_local(in, NULL, 1, MPI_INT, MPI_SUM)) == MPI_ERR_BUFFER);
  MPI_Isend(in, 4, MPI_INT, next, 21, MPI_COMM_WORLD, &request);
  CHECK(class_of(MPI_Recv(in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status)) == MPI_ERR_TRUNCATE);
  CHECK(status.MPI_SOURCE == last && status.MPI_TAG == 21);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Allreduce(&small, &most, 1, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD);
  CHECK(most == size);
}

/* The error of a request goes to the handler of its own communicator, wherever the request stands among others. */
static void errors_of_requests(void) {
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  MPI_Comm of;
  MPI_Comm_dup(MPI_COMM_WORLD, &of);
  MPI_Comm_set_errhandler(of, MPI_ERRORS_RETURN);
  for (int call = 0; call < 4; ++call) {
    int in = 0, out[2] = {rank, rank}, count = 0, indices[3], flag = 0, error = MPI_SUCCESS;
    MPI_Request sent, requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (call != 1) MPI_Isend(out, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Irecv(&in, 1, MPI_INT, last, call, of, &requests[2]);
    MPI_Isend(out, 2, MPI_INT, next, call, of, &sent);
    if (call == 0) error = MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    if (call == 1) error = MPI_Waitany(3, requests, indices, MPI_STATUS_IGNORE);
    while (call == 2 && error == MPI_SUCCESS && !flag) error = MPI_Testall(3, requests, &flag, MPI_STATUSES_IGNORE);
    while (call == 3 && error == MPI_SUCCESS && count != MPI_UNDEFINED) {
      error = MPI_Waitsome(3, requests, &count, indices, MPI_STATUSES_IGNORE);
    }
    CHECK(class_of(error) == MPI_ERR_TRUNCATE);
    CHECK(requests[1] == MPI_REQUEST_NULL && requests[2] == MPI_REQUEST_NULL);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&of);
}

/* So does the error of one whose communicator was freed, as was the handler; another that has its handle now hears
   nothing. */
static int told = 0;
static void count_truncated(MPI_Comm* comm, int* error, ...) {
  (void)comm;
  told += class_of(*error) == MPI_ERR_TRUNCATE;
}
static void errors_of_freed(void) {
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  int in = 0, out[2] = {rank, rank};
  MPI_Comm of, other;
  MPI_Errhandler handler;
  MPI_Request sent, received;
  MPI_Comm_dup(MPI_COMM_WORLD, &of);
  MPI_Comm_create_errhandler(count_truncated, &handler);
  MPI_Comm_set_errhandler(of, handler);
  MPI_Errhandler_free(&handler);
  MPI_Irecv(&in, 1, MPI_INT, last, 0, of, &received);
  MPI_Isend(out, 2, MPI_INT, next, 0, of, &sent);
  MPI_Comm_free(&of);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  CHECK(class_of(MPI_Wait(&received, MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE);
  CHECK(told == 1 && received == MPI_REQUEST_NULL);
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  MPI_Comm_free(&other);
}

/* Elements of a struct that was received in part; external32 of what is shorter there. */
static void types(void) {
  const int one[3] = {1, 1, 1};
  const MPI_Aint at[3] = {0, 8, 16};
  const MPI_Datatype of[3] = {MPI_INT, MPI_DOUBLE, MPI_CHAR};
  const long values[2] = {-5, 1L << 30};
  long back[2] = {0, 0};
  char packed[16];
  int elements = 0, count = 0;
  MPI_Aint bytes = 0, position = 0;
  MPI_Datatype record;
  MPI_Status status;
  memset(&status, 0, sizeof status);
  MPI_Type_create_struct(3, one, at, of, &record);
  MPI_Type_commit(&record);
  for (int set = 0; set < 7; ++set) {
    MPI_Status_set_elements(&status, record, set);
    MPI_Get_elements(&status, record, &elements);
    MPI_Get_count(&status, record, &count);
    CHECK(elements == set && count == (set % 3 == 0 ? set / 3 : MPI_UNDEFINED));
  }
  MPI_Type_free(&record);
  MPI_Pack_external_size("external32", 2, MPI_LONG, &bytes);
  CHECK(bytes == 8);
  MPI_Pack_external("external32", values, 2, MPI_LONG, packed, sizeof packed, &position);
  CHECK(position == 8 && memcmp(packed, "\xff\xff\xff\xfb\x40\0\0\0", 8) == 0);
  position = 0;
  MPI_Unpack_external("external32", packed, 8, &position, back, 2, MPI_LONG);
  CHECK(position == 8 && back[0] == values[0] && back[1] == values[1]);
}

/* Grids as even as they can be, against all others. */
static void grids(void) {
  for (int n = 1; n <= 600; ++n) {
    int dims[3] = {0, 0, 0}, best = n;
    MPI_Dims_create(n, 3, dims);
    CHECK(dims[0] * dims[1] * dims[2] == n && dims[0] >= dims[1] && dims[1] >= dims[2]);
    for (int a = 1; a * a * a <= n; ++a) {
      for (int b = a; n % a == 0 && a * b * b <= n; ++b) {
        if (n / a % b == 0 && n / a / b - a < best) best = n / a / b - a;
      }
    }
    CHECK(dims[0] - dims[2] == best);
  }
}

static MPI_Session failed_of;
static int failed_class = MPI_SUCCESS;
static void note_failure(MPI_Session* session, int* error, ...) {
  failed_of = *session;
  failed_class = class_of(*error);
}
/* A mistake goes to the handler of the session, and of a communicator that is made to the one that it is given. */
static void mistakes_of(MPI_Session session) {
  MPI_Errhandler handler;
  MPI_Group group;
  MPI_Comm comm;
  CHECK(class_of(MPI_Group_from_session_pset(session, "mpi://none", &group)) == MPI_ERR_ARG);
  MPI_Session_create_errhandler(note_failure, &handler);
  MPI_Session_set_errhandler(session, handler);
  MPI_Errhandler_free(&handler);
  CHECK(class_of(MPI_Group_from_session_pset(session, "mpi://none", &group)) == MPI_ERR_ARG);
  CHECK(failed_of == session && failed_class == MPI_ERR_ARG);
  CHECK(class_of(MPI_Comm_create_from_group(MPI_GROUP_NULL, "none", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm)) ==
        MPI_ERR_GROUP);
}

/* A buffer of the session, as long as it has room, is that of what was made of it. */
static void sends_of_session(MPI_Session session, MPI_Comm comm) {
  char room[2 * (MPI_BSEND_OVERHEAD + sizeof(int))], *detached;
  int token = 0, bytes;
  MPI_Comm copy;
  MPI_Comm_dup(comm, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Bsend(&rank, 1, MPI_INT, rank, 0, copy)) == MPI_ERR_BUFFER);
  MPI_Session_attach_buffer(session, room, sizeof room);
  CHECK(MPI_Bsend(&rank, 1, MPI_INT, rank, 0, copy) == MPI_SUCCESS);
  CHECK(class_of(MPI_Bsend(room, sizeof room, MPI_BYTE, rank, 0, copy)) == MPI_ERR_BUFFER);
  MPI_Recv(&token, 1, MPI_INT, rank, 0, copy, MPI_STATUS_IGNORE);
  CHECK(token == rank);
  MPI_Session_detach_buffer(session, &detached, &bytes);
  CHECK(detached == room && bytes == (int)sizeof room);
  MPI_Comm_free(&copy);
}

/* Before MPI_Init: the world is joined and left each time. */
static void sessions(void) {
  for (int turn = 0; turn < 3; ++turn) {
    MPI_Session session;
    MPI_Group group, first;
    MPI_Comm comm, none;
    int one = 1, sum = 0;
    const int zero[1] = {0};
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
    CHECK(MPI_Group_from_session_pset(session, "mpi://world", &group) == MPI_SUCCESS);
    MPI_Comm_create_from_group(group, "again", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == size);
    sends_of_session(session, comm);
    MPI_Group_incl(group, 1, zero, &first);
    MPI_Comm_create_from_group(first, "first", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &none);
    CHECK((none == MPI_COMM_NULL) == (rank != 0));
    if (none != MPI_COMM_NULL) MPI_Comm_free(&none);
    MPI_Group_free(&group);
    MPI_Group_free(&first);
    MPI_Comm_free(&comm);
    mistakes_of(session);
    MPI_Session_finalize(&session);
  }
}

int main(int argc, char** argv) {
  int provided = 0;
  sessions();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  frees();
  frees_of_groups();
  frees_by_threads();
  if (size > 1 && kSeesProcesses) frees_beside_wait();
  tags_of_threads();
  idups();
  flushes();
  sends_beside_detach();
  sends_of_freed();
  if (size > 1) locks_of_functions();
  persistent();
  partitions();
  asks_beside_wait();
  parts_to_self(MPI_COMM_WORLD);
  MPI_Comm_dup(MPI_COMM_SELF, &own[0]);
  if (size == 1) parts_to_self(own[0]);
  MPI_Comm_free(&own[0]);
  attributes();
  attributes_of_parts();
  sets_by_threads();
  errors();
  errors_of_requests();
  errors_of_freed();
  types();
  grids();
  printf("rank %d of %d: fine\n", rank, size);
  const double began = MPI_Wtime();
  MPI_Finalize();
  if (MPI_Wtime() - began > 4) printf("rank %d: MPI_Finalize took long\n", rank);
  return 0;
}
