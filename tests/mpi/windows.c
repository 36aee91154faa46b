/* Windows: each way to make one, to move data and to synchronize; what all ranks do at once is there of all. Prints
   "rank R of N: fine". An argument "apart": the ranks do not share memory. Another one: the last rank dies, and the
   others print the class of the error that they get. */

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/mpi/check.h"

enum { kInts = 64, kTimes = 50 };

static int next, last;

/* A window of the flavor; `memory`: of kInts ints. */
static MPI_Win made(int flavor, int** memory) {
  MPI_Win win;
  const MPI_Aint bytes = kInts * sizeof(int);
  if (flavor == MPI_WIN_FLAVOR_CREATE) {
    *memory = malloc((size_t)bytes);
    MPI_Win_create(*memory, bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  } else if (flavor == MPI_WIN_FLAVOR_ALLOCATE) {
    MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, memory, &win);
  } else {
    MPI_Win_allocate_shared(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, memory, &win);
  }
  memset(*memory, 0, (size_t)bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  return win;
}
static void freed(MPI_Win* win, int flavor, int* memory) {
  MPI_Win_free(win);
  CHECK(*win == MPI_WIN_NULL);
  if (flavor == MPI_WIN_FLAVOR_CREATE) free(memory);
}

/* To and from every second int of the next rank's. */
static void moves(int flavor) {
  int *memory, out[kInts / 2], in[kInts / 2];
  MPI_Win win = made(flavor, &memory);
  MPI_Datatype every;
  MPI_Request request;
  MPI_Type_vector(kInts / 2, 1, 2, MPI_INT, &every);
  MPI_Type_commit(&every);
  for (int i = 0; i < kInts / 2; ++i) out[i] = 1000 * rank + i;
  MPI_Win_fence(0, win);
  MPI_Put(out, kInts / 2, MPI_INT, next, 0, 1, every, win);
  MPI_Win_fence(0, win);
  for (int i = 0; i < kInts; ++i) CHECK(memory[i] == (i % 2 == 0 ? 1000 * last + i / 2 : 0));
  MPI_Get(in, kInts / 2, MPI_INT, next, 0, 1, every, win);
  MPI_Put(out, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win);
  MPI_Win_fence(0, win);
  CHECK(memcmp(in, out, sizeof in) == 0);
  MPI_Win_lock_all(0, win);
  MPI_Rput(out + 5, 1, MPI_INT, next, 1, 1, MPI_INT, win, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Win_flush(next, win);
  MPI_Rget(in, 2, MPI_INT, next, 1, 2, MPI_INT, win, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(in[0] == 1000 * rank + 5 && in[1] == 1000 * rank + 1);
  MPI_Win_unlock_all(win);
  MPI_Type_free(&every);
  freed(&win, flavor, memory);
}

/* All ranks add to rank 0's at once; each of its values is seen by one of them. */
static void updates(int flavor) {
  struct {
    double value;
    int place;
  } best = {10.0 * rank, rank}, *found;
  int *memory, one = 1, was = -1, previous = -1, zero = 0, seen[kInts];
  const double part = 0.5;
  double sum = 0;
  MPI_Win win = made(flavor, &memory);
  for (int turn = 0; turn < kTimes; ++turn) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Fetch_and_op(&one, &was, MPI_INT, 0, 0, MPI_SUM, win);
    CHECK(was > previous);
    previous = was;
    MPI_Accumulate(&part, 1, MPI_DOUBLE, 0, 2, 1, MPI_DOUBLE, MPI_SUM, win);
    MPI_Accumulate(&best, 1, MPI_DOUBLE_INT, 0, 4, 1, MPI_DOUBLE_INT, MPI_MAXLOC, win);
    do {
      MPI_Compare_and_swap(&one, &zero, &was, MPI_INT, 0, 8, win); /* a lock of the program's */
    } while (was != 0);
    MPI_Get(&was, 1, MPI_INT, 0, 9, 1, MPI_INT, win);
    ++was;
    MPI_Put(&was, 1, MPI_INT, 0, 9, 1, MPI_INT, win);
    MPI_Win_flush(0, win);
    MPI_Fetch_and_op(&zero, &was, MPI_INT, 0, 8, MPI_REPLACE, win);
    CHECK(was == 1);
    MPI_Win_unlock(0, win);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Get(&was, 1, MPI_INT, 0, 10, 1, MPI_INT, win);
    ++was;
    MPI_Put(&was, 1, MPI_INT, 0, 10, 1, MPI_INT, win);
    MPI_Win_unlock(0, win);
  }
  MPI_Win_fence(0, win);
  MPI_Get_accumulate(NULL, 0, MPI_INT, seen, 11, MPI_INT, 0, 0, 11, MPI_INT, MPI_NO_OP, win);
  CHECK(seen[0] == size * kTimes && seen[8] == 0 && seen[9] == size * kTimes && seen[10] == size * kTimes);
  memcpy(&sum, &seen[2], sizeof sum);
  CHECK(sum == 0.5 * size * kTimes);
  found = (void*)&seen[4];
  CHECK(found->value == 10.0 * (size - 1) && found->place == size - 1);
  MPI_Win_fence(0, win);
  freed(&win, flavor, memory);
}

/* Ranks that share a lock again and again, until what they read changes, do not keep the one out that changes it. */
static void reads_until_written(int flavor) {
  int *memory, one = 1, was = 0;
  MPI_Win win = made(flavor, &memory);
  if (rank == size - 1) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Put(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_unlock(0, win);
    was = 1;
  }
  while (was == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Get(&was, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_unlock(0, win);
  }
  MPI_Win_fence(0, win);
  freed(&win, flavor, memory);
}

/* One thread locks a target again and again while another flushes what is locked. */
static void* lock_first(void* win) {
  for (int turn = 0; turn < kTimes; ++turn) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, *(MPI_Win*)win);
    MPI_Win_unlock(0, *(MPI_Win*)win);
  }
  return NULL;
}
static void locks_by_threads(void) {
  pthread_t other;
  int* memory;
  if (size == 1) return;
  MPI_Win win = made(MPI_WIN_FLAVOR_ALLOCATE, &memory);
  MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
  pthread_create(&other, NULL, lock_first, &win);
  for (int turn = 0; turn < kTimes; ++turn) CHECK(MPI_Win_flush_all(win) == MPI_SUCCESS);
  pthread_join(other, NULL);
  MPI_Win_unlock(1, win);
  MPI_Win_free(&win);
}

/* Only neighbors know of each other. */
static void neighbors(void) {
  int *memory, flag = 0;
  const int to[1] = {next}, from[1] = {last};
  MPI_Group all, targets, origins;
  MPI_Win win = made(MPI_WIN_FLAVOR_ALLOCATE, &memory);
  MPI_Win_get_group(win, &all);
  MPI_Group_incl(all, 1, to, &targets);
  MPI_Group_incl(all, 1, from, &origins);
  for (int turn = 1; turn <= kTimes; ++turn) {
    const int value = 100 * turn + rank;
    MPI_Win_post(origins, 0, win);
    if (turn == 1) { /* that they have posted does not say that they have completed */
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Win_test(win, &flag);
      CHECK(!flag);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_start(targets, 0, win);
    MPI_Put(&value, 1, MPI_INT, next, turn, 1, MPI_INT, win);
    MPI_Win_complete(win);
    if (turn % 2 == 0) {
      MPI_Win_wait(win);
    } else {
      for (flag = 0; !flag;) MPI_Win_test(win, &flag);
    }
    CHECK(memory[turn] == 100 * turn + last);
  }
  MPI_Group_free(&all);
  MPI_Group_free(&targets);
  MPI_Group_free(&origins);
  MPI_Win_free(&win);
}

static void shared(void) {
  int *memory, *first, *theirs, unit = 0;
  MPI_Aint bytes = 0;
  MPI_Win win = made(MPI_WIN_FLAVOR_SHARED, &memory);
  MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &first);
  MPI_Win_shared_query(win, next, &bytes, &unit, &theirs);
  CHECK(bytes == kInts * (MPI_Aint)sizeof(int) && unit == sizeof(int));
  CHECK(memory == first + rank * kInts && theirs == first + next * kInts);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  theirs[3] = 7 + rank;
  MPI_Win_sync(win);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_sync(win);
  CHECK(memory[3] == 7 + last);
  MPI_Win_unlock_all(win);
  MPI_Win_free(&win);
}

static void dynamic(void) {
  int memory[2] = {0, 0}, value = 5 + rank;
  MPI_Aint here, there;
  MPI_Win win;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_attach(win, memory, sizeof memory);
  MPI_Get_address(&memory[1], &here);
  MPI_Sendrecv(&here, 1, MPI_AINT, last, 0, &there, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Win_fence(0, win);
  MPI_Put(&value, 1, MPI_INT, next, there, 1, MPI_INT, win);
  MPI_Win_fence(0, win);
  CHECK(memory[0] == 0 && memory[1] == 5 + last);
  MPI_Win_detach(win, memory);
  MPI_Win_free(&win);
}

static int called = 0, deleted = 0;
static void count_call(MPI_Win* win, int* error, ...) { called += *win != MPI_WIN_NULL && *error != MPI_SUCCESS; }
static int count_delete(MPI_Win win, int keyval, void* value, void* state) {
  (void)win, (void)keyval, (void)state;
  deleted += (int)(MPI_Aint)value;
  return MPI_SUCCESS;
}

static void errors(void) {
  int *memory, *base, key, flag = 0, *flavor, value = 0;
  float x = 0;
  MPI_Aint* bytes;
  MPI_Errhandler handler;
  MPI_Win win = made(MPI_WIN_FLAVOR_ALLOCATE, &memory);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  MPI_Win_fence(0, win);
  CHECK(class_of(MPI_Put(&value, 1, MPI_INT, next, kInts, 1, MPI_INT, win)) == MPI_ERR_RMA_RANGE);
  CHECK(class_of(MPI_Put(&value, 1, MPI_INT, next, -1, 1, MPI_INT, win)) == MPI_ERR_RMA_RANGE);
  CHECK(class_of(MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, win)) == MPI_ERR_RANK);
  CHECK(class_of(MPI_Accumulate(&value, 1, MPI_FLOAT, next, 0, 1, MPI_FLOAT, MPI_BAND, win)) == MPI_ERR_OP);
  CHECK(class_of(MPI_Compare_and_swap(&x, &x, &x, MPI_FLOAT, next, 0, win)) == MPI_ERR_TYPE);
#ifdef MPI_2COMPLEX /* which no operation is defined for */
  const float four[4] = {1, 2, 3, 4};
  CHECK(class_of(MPI_Accumulate(four, 1, MPI_2COMPLEX, next, 0, 1, MPI_2COMPLEX, MPI_SUM, win)) == MPI_ERR_OP);
  CHECK(MPI_Accumulate(four, 1, MPI_2COMPLEX, next, 0, 1, MPI_2COMPLEX, MPI_REPLACE, win) == MPI_SUCCESS);
#endif
  MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
  MPI_Win_create_errhandler(count_call, &handler);
  MPI_Win_set_errhandler(win, handler);
  MPI_Errhandler_free(&handler);
  MPI_Win_call_errhandler(win, MPI_ERR_OTHER);
  CHECK(called == 1);
  MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag);
  CHECK(flag && base == memory);
  MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag);
  CHECK(flag && *bytes == kInts * (MPI_Aint)sizeof(int));
  MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag);
  CHECK(flag && *flavor == MPI_WIN_FLAVOR_ALLOCATE);
  MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, count_delete, &key, NULL);
  MPI_Win_set_attr(win, key, (void*)(MPI_Aint)3);
  MPI_Win_free_keyval(&key);
  MPI_Win_free(&win);
  CHECK(deleted == 3);
}

/* A call that no epoch allows is refused, and neither the epoch nor the window changes. */
static void epochs(void) {
  int *memory, value = 0;
  MPI_Group all, others;
  MPI_Win win = made(MPI_WIN_FLAVOR_ALLOCATE, &memory);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  MPI_Win_get_group(win, &all);
  MPI_Group_excl(all, 1, &rank, &others);
#define PUT(target) class_of(MPI_Put(&value, 1, MPI_INT, target, rank, 1, MPI_INT, win))
  CHECK(PUT(next) == MPI_ERR_RMA_SYNC);
  CHECK(class_of(MPI_Win_unlock(next, win)) == MPI_ERR_RMA_SYNC);
  CHECK(class_of(MPI_Win_complete(win)) == MPI_ERR_RMA_SYNC);
  CHECK(class_of(MPI_Win_wait(win)) == MPI_ERR_RMA_SYNC);
  CHECK(class_of(MPI_Win_flush(next, win)) == MPI_ERR_RMA_SYNC);
  CHECK(class_of(MPI_Win_flush_all(win)) == MPI_ERR_RMA_SYNC);
  CHECK(class_of(MPI_Win_sync(win)) == MPI_SUCCESS);
  MPI_Win_fence(0, win);
  CHECK(PUT(next) == MPI_SUCCESS);
  MPI_Win_fence(0, win);
  MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
  CHECK(PUT(next) == MPI_SUCCESS && (size == 1 || PUT(rank) == MPI_ERR_RMA_SYNC));
  CHECK(class_of(MPI_Win_fence(0, win)) == MPI_ERR_RMA_SYNC);
  CHECK(class_of(MPI_Win_free(&win)) == MPI_ERR_RMA_SYNC);
  CHECK(MPI_Win_flush(next, win) == MPI_SUCCESS);
  MPI_Win_unlock(next, win);
  CHECK(PUT(next) == MPI_ERR_RMA_SYNC); /* the lock has ended the fence's epoch */
  /* The neighbor of a rank at the edge of a grid. */
  MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, win);
  CHECK(PUT(MPI_PROC_NULL) == MPI_SUCCESS);
  CHECK(MPI_Win_flush(MPI_PROC_NULL, win) == MPI_SUCCESS && MPI_Win_flush_local(MPI_PROC_NULL, win) == MPI_SUCCESS);
  MPI_Win_unlock(MPI_PROC_NULL, win);
  MPI_Win_post(others, 0, win);
  MPI_Win_start(others, 0, win);
  CHECK(size == 1 || (PUT(next) == MPI_SUCCESS && PUT(rank) == MPI_ERR_RMA_SYNC));
  CHECK(class_of(MPI_Win_free(&win)) == MPI_ERR_RMA_SYNC);
  MPI_Win_complete(win);
  CHECK(class_of(MPI_Win_free(&win)) == MPI_ERR_RMA_SYNC);
  MPI_Win_wait(win);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
  CHECK(PUT(next) == MPI_ERR_RMA_SYNC);
  MPI_Group_free(&others);
  MPI_Group_free(&all);
  MPI_Win_free(&win);
}

/* Hints of MPI's are kept, others ignored; what has a default says so. */
static int has_hint(MPI_Win win, const char* key, const char* value) {
  char found[MPI_MAX_INFO_VAL + 1];
  int flag = 0;
  MPI_Info info;
  MPI_Win_get_info(win, &info);
  MPI_Info_get(info, key, MPI_MAX_INFO_VAL, found, &flag);
  MPI_Info_free(&info);
  return flag && strcmp(found, value) == 0;
}
static void hints(void) {
  int* memory;
  MPI_Info info;
  MPI_Win win = made(MPI_WIN_FLAVOR_ALLOCATE, &memory);
  CHECK(has_hint(win, "accumulate_ops", "same_op_no_op"));
  MPI_Info_create(&info);
  MPI_Info_set(info, "accumulate_ops", "same_op");
  MPI_Info_set(info, "no_locks", "true");
  MPI_Info_set(info, "its_own", "true");
  MPI_Win_set_info(win, info);
  MPI_Info_free(&info);
  CHECK(has_hint(win, "accumulate_ops", "same_op") && has_hint(win, "no_locks", "true"));
  CHECK(!has_hint(win, "its_own", "true"));
  MPI_Win_free(&win);
}

/* More memory than rank 0 can make a file of is refused on all ranks, and no other descriptor is closed. */
static void no_room(void) {
  enum { kDescriptors = 200 };
  const rlim_t most = (rlim_t)1 << 30;
  struct rlimit before, less;
  int others[kDescriptors], *memory;
  MPI_Win win;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Win_allocate(INTPTR_MAX, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win)) == MPI_ERR_NO_MEM);
  CHECK(class_of(MPI_Win_allocate((MPI_Aint)1 << 62, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win)) ==
        MPI_ERR_NO_MEM);
  getrlimit(RLIMIT_FSIZE, &before);
  less = before;
  less.rlim_cur = most < before.rlim_max ? most : before.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  if (rank == 0) setrlimit(RLIMIT_FSIZE, &less);
  for (int i = 0; rank != 0 && i < kDescriptors; ++i) CHECK((others[i] = dup(1)) >= 0);
  CHECK(class_of(MPI_Win_allocate(2 * (MPI_Aint)most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win)) ==
        MPI_ERR_NO_MEM);
  for (int i = 0; rank != 0 && i < kDescriptors; ++i) CHECK(fcntl(others[i], F_GETFD) >= 0 && close(others[i]) == 0);
  if (rank == 0) setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* How many mappings this process has of windows' memory; its own bytes of address space. */
static int mapped_windows(rlim_t* bytes) {
  char line[512];
  int count = 0;
  unsigned long pages = 0;
  FILE* const maps = fopen("/proc/self/maps", "r");
  FILE* const sizes = fopen("/proc/self/statm", "r");
  CHECK(maps != NULL && sizes != NULL && fscanf(sizes, "%lu", &pages) == 1);
  while (fgets(line, sizeof line, maps) != NULL) count += strstr(line, "rondo-window") != NULL;
  fclose(maps);
  fclose(sizes);
  *bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
  return count;
}
/* Memory that the last rank cannot map is refused on all ranks, and none keeps its mapping. */
static void no_room_on_one(void) {
  const rlim_t most = (rlim_t)1 << 30;
  struct rlimit before, less;
  rlim_t bytes;
  int* memory;
  MPI_Win win;
  const int mapped = mapped_windows(&bytes);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  getrlimit(RLIMIT_AS, &before);
  less = before;
  less.rlim_cur = bytes + most / 2;
  if (rank == size - 1) CHECK(setrlimit(RLIMIT_AS, &less) == 0);
  CHECK(class_of(MPI_Win_allocate((MPI_Aint)most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win)) == MPI_ERR_NO_MEM);
  if (rank == size - 1) setrlimit(RLIMIT_AS, &before);
  CHECK(mapped_windows(&bytes) == mapped);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Ranks that are split off as such that share memory can have such a window; how many they are. */
static void shared_of_split(int expected) {
  int *memory, ranks;
  MPI_Comm those;
  MPI_Win win;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &those);
  MPI_Comm_size(those, &ranks);
  CHECK(ranks == expected);
  MPI_Comm_set_errhandler(those, MPI_ERRORS_RETURN);
  CHECK(MPI_Win_allocate_shared(sizeof(int), 1, MPI_INFO_NULL, those, &memory, &win) == MPI_SUCCESS);
  *memory = rank;
  MPI_Win_free(&win);
  MPI_Comm_free(&those);
}

/* Ranks that do not share memory cannot have such a window, and go on. */
static void no_shared(void) {
  int* memory;
  MPI_Win win;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Win_allocate_shared(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win)) == MPI_ERR_RMA_SHARED);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  win = made(MPI_WIN_FLAVOR_ALLOCATE, &memory);
  int *theirs, unit;
  MPI_Aint bytes;
  MPI_Win_shared_query(win, rank, &bytes, &unit, &theirs);
  CHECK(theirs == memory && bytes == kInts * (MPI_Aint)sizeof(int));
  MPI_Win_shared_query(win, next, &bytes, &unit, &theirs);
  CHECK(theirs == NULL && bytes == 0);
  MPI_Win_free(&win);
}

/* Memory that is not attached, or not any more, is not touched. */
static void detached(void) {
  int memory[4] = {1, 2, 3, 4}, value = 9;
  MPI_Aint here, there;
  MPI_Win win;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  MPI_Win_attach(win, &memory[1], 2 * sizeof(int));
  MPI_Get_address(&memory[0], &here);
  MPI_Sendrecv(&here, 1, MPI_AINT, last, 0, &there, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Win_lock_all(0, win);
  CHECK(class_of(MPI_Put(&value, 1, MPI_INT, next, there, 1, MPI_INT, win)) == MPI_ERR_RMA_RANGE);
  CHECK(class_of(MPI_Get(memory, 2, MPI_INT, next, there + 8, 2, MPI_INT, win)) == MPI_ERR_RMA_RANGE);
  CHECK(MPI_Put(&value, 1, MPI_INT, next, there + 8, 1, MPI_INT, win) == MPI_SUCCESS);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(memory[0] == 1 && memory[1] == 2 && memory[2] == 9 && memory[3] == 4);
  MPI_Win_detach(win, &memory[1]);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(class_of(MPI_Put(&value, 1, MPI_INT, next, there + 4, 1, MPI_INT, win)) == MPI_ERR_RMA_RANGE);
  MPI_Win_unlock_all(win);
  MPI_Win_free(&win);
}

static void dies(const char* how) {
  int *memory, error = MPI_SUCCESS, value = 0;
  const int dead = size - 1;
  MPI_Group all, those;
  /* A put into memory that is mapped would not ask who lives. */
  const int flavor = strcmp(how, "die-put") == 0 ? MPI_WIN_FLAVOR_CREATE : MPI_WIN_FLAVOR_ALLOCATE;
  MPI_Win win = made(flavor, &memory);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  MPI_Win_get_group(win, &all);
  MPI_Group_incl(all, 1, &dead, &those);
  MPI_Win_fence(0, win);
  if (rank == dead && strcmp(how, "die-lock") == 0) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
  if (rank == dead && strcmp(how, "die-lock-all") == 0) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == dead) _exit(0);
  if (strcmp(how, "die-lock") == 0) error = MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
  if (strcmp(how, "die-lock-all") == 0) error = MPI_Win_lock_all(0, win); /* rank 0 can be locked, and rank 1 cannot */
  if (strcmp(how, "die-start") == 0) error = MPI_Win_start(those, 0, win);
  if (strcmp(how, "die-fence") == 0) error = MPI_Win_fence(0, win);
  if (strcmp(how, "die-put") == 0) {
    while (error == MPI_SUCCESS) error = MPI_Put(&value, 1, MPI_INT, dead, 0, 1, MPI_INT, win);
  }
  CHECK(class_of(MPI_Win_free(&win)) == class_of(error) && win == MPI_WIN_NULL);
  if (flavor == MPI_WIN_FLAVOR_CREATE) free(memory);
  printf("class %d\n", class_of(error));
}

int main(int argc, char** argv) {
  const int flavors[3] = {MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_SHARED};
  const char* how = argc > 1 ? argv[1] : "";
  const int apart = strcmp(how, "apart") == 0;
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  next = (rank + 1) % size;
  last = (rank + size - 1) % size;
  if (!apart && how[0] != 0) {
    dies(how);
    MPI_Finalize();
    return 0;
  }
  for (int i = 0; i < (apart ? 2 : 3); ++i) {
    moves(flavors[i]);
    updates(flavors[i]);
    reads_until_written(flavors[i]);
  }
  locks_by_threads();
  neighbors();
  if (apart) {
    no_shared();
    shared_of_split(1);
    detached();
  } else {
    shared();
    shared_of_split(size);
    no_room();
    no_room_on_one();
  }
  dynamic();
  errors();
  epochs();
  hints();
  printf("rank %d of %d: fine\n", rank, size);
  MPI_Finalize();
  return 0;
}
