/* Random operations on windows, each against a scalar reference: every thread of a rank has a slice of every rank's
   memory for itself, and a copy of it here; what all ranks change at once is changed by operations that commute. An
   argument is the seed. Prints "rank R of N: fine". */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/check.h"

enum { kThreads = 2, kInts = 6000, kDoubles = 500, kPairs = 300, kMostPlaces = 1500, kOperations = 60, kOps = 12 };

typedef struct {
  double value;
  int index;
} Pair;
/* A thread's slice of a rank's memory. */
typedef struct {
  Pair pairs[kPairs];
  double doubles[kDoubles];
  uint32_t ints[kInts];
} Slice;
/* What all ranks change. */
typedef struct {
  uint32_t values[kOps];
  Pair least;
} Common;

typedef struct {
  MPI_Win win;
  int flavor, unit;
  char* memory;    /* this rank's: a Common, then the slices of all threads */
  MPI_Aint* bases; /* of each rank's memory, as a displacement */
} Window;
enum { kNoLock, kLockEach, kLockAll };
typedef struct {
  Window* window;
  int thread, locks;
  uint64_t random;
  Slice* copies; /* of each rank */
} Worker;

static uint32_t drawn(Worker* worker, uint32_t below) {
  worker->random ^= worker->random << 13;
  worker->random ^= worker->random >> 7;
  worker->random ^= worker->random << 17;
  return (uint32_t)(worker->random >> 20) % below;
}

static MPI_Aint memory_bytes(void) { return (MPI_Aint)(sizeof(Common) + sizeof(Slice) * (size_t)(size * kThreads)); }
static size_t slice_begin(int of, int thread) {
  return sizeof(Common) + sizeof(Slice) * (size_t)(of * kThreads + thread);
}
/* The displacement of a byte of a rank's memory; units divide it. */
static MPI_Aint displacement(const Window* window, int target, size_t byte) {
  return window->bases[target] + (MPI_Aint)byte / window->unit;
}

/* --- The operations on unsigned integers, by numbers */

static MPI_Op op_of(int number) {
  const MPI_Op ops[kOps] = {MPI_SUM,  MPI_PROD, MPI_MIN,  MPI_MAX,  MPI_LAND,    MPI_LOR,
                            MPI_BAND, MPI_BOR,  MPI_BXOR, MPI_LXOR, MPI_REPLACE, MPI_NO_OP};
  return ops[number];
}
static uint32_t applied(int number, uint32_t in, uint32_t there) {
  switch (number) {
    case 0:
      return in + there;
    case 1:
      return in * there;
    case 2:
      return in < there ? in : there;
    case 3:
      return in > there ? in : there;
    case 4:
      return in && there;
    case 5:
      return in || there;
    case 6:
      return in & there;
    case 7:
      return in | there;
    case 8:
      return in ^ there;
    case 9:
      return !in != !there;
    case 10:
      return in;
    default:
      return there;
  }
}

/* --- Random places and types: `places` gets the numbers of the ints in the order of the type map. */

static int random_type(Worker* worker, int* places, MPI_Datatype* type) {
  int count = 0, blocks = 1 + (int)drawn(worker, 40), lengths[40], begins[40];
  const int kind = (int)drawn(worker, 3), length = 1 + (int)drawn(worker, 30), gap = (int)drawn(worker, 30);
  if (kind == 0) { /* one block */
    blocks = 1;
    lengths[0] = 1 + (int)drawn(worker, kMostPlaces);
    begins[0] = (int)drawn(worker, (uint32_t)(kInts - lengths[0]));
    MPI_Type_contiguous(lengths[0], MPI_UNSIGNED, type);
  } else if (kind == 1) { /* at distances that are the same */
    for (int i = 0; i < blocks; ++i) lengths[i] = length, begins[i] = i * (length + gap);
    MPI_Type_vector(blocks, length, length + gap, MPI_UNSIGNED, type);
  } else { /* backward, at any distances */
    for (int i = blocks, at = 0; i-- > 0; at += lengths[i]) {
      lengths[i] = 1 + (int)drawn(worker, 30);
      at += (int)drawn(worker, 30);
      begins[i] = at;
    }
    MPI_Type_indexed(blocks, lengths, begins, MPI_UNSIGNED, type);
  }
  MPI_Type_commit(type);
  const int from = kind == 0 ? 0 : (int)drawn(worker, kInts - 40 * 60);
  for (int i = 0; i < blocks; ++i) {
    for (int k = 0; k < lengths[i]; ++k) places[count++] = from + begins[i] + k;
  }
  /* The type begins at displacement 0 of its map; what is returned is where that is. */
  places[count] = kind == 0 ? begins[0] : from;
  return count;
}

/* One operation on ints of the target's slice, and on the copy. */
static void change_ints(Worker* worker, int target) {
  static _Thread_local int places[kMostPlaces + 2];
  static _Thread_local uint32_t in[2 * kMostPlaces], was[kMostPlaces];
  Window* window = worker->window;
  uint32_t* copy = worker->copies[target].ints;
  MPI_Datatype type, origin;
  MPI_Request request;
  const int count = random_type(worker, places, &type), op = (int)drawn(worker, kOps), wide = 1 + (int)drawn(worker, 2);
  const size_t begin = slice_begin(rank, worker->thread) + offsetof(Slice, ints);
  const MPI_Aint at = displacement(window, target, begin + sizeof(uint32_t) * (size_t)places[count]);
  MPI_Type_vector(count, 1, wide, MPI_UNSIGNED, &origin); /* dense, or every second one */
  MPI_Type_commit(&origin);
  for (int i = 0; i < wide * count; ++i) in[i] = drawn(worker, 4) == 0 ? drawn(worker, 2) : drawn(worker, 1u << 31);
  switch (drawn(worker, 6)) {
    case 0:
      if (worker->locks == kNoLock || drawn(worker, 2)) {
        MPI_Put(in, 1, origin, target, at, 1, type, window->win);
      } else {
        MPI_Rput(in, 1, origin, target, at, 1, type, window->win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      }
      for (int i = 0; i < count; ++i) copy[places[i]] = in[i * wide];
      break;
    case 1:
      if (worker->locks == kNoLock) {
        MPI_Get(in, 1, origin, target, at, 1, type, window->win);
      } else {
        MPI_Rget(in, 1, origin, target, at, 1, type, window->win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      }
      for (int i = 0; i < count; ++i) CHECK(in[i * wide] == copy[places[i]]);
      break;
    case 2:
      MPI_Accumulate(in, 1, origin, target, at, 1, type, op_of(op), window->win);
      for (int i = 0; i < count; ++i) copy[places[i]] = applied(op, in[i * wide], copy[places[i]]);
      break;
    case 3:
      MPI_Get_accumulate(in, 1, origin, was, count, MPI_UNSIGNED, target, at, 1, type, op_of(op), window->win);
      for (int i = 0; i < count; ++i) {
        CHECK(was[i] == copy[places[i]]);
        copy[places[i]] = applied(op, in[i * wide], copy[places[i]]);
      }
      break;
    case 4: {
      const MPI_Aint first = displacement(window, target, begin + sizeof(uint32_t) * (size_t)places[0]);
      MPI_Fetch_and_op(in, was, MPI_UNSIGNED, target, first, op_of(op), window->win);
      CHECK(was[0] == copy[places[0]]);
      copy[places[0]] = applied(op, in[0], copy[places[0]]);
      break;
    }
    default: {
      const MPI_Aint first = displacement(window, target, begin + sizeof(uint32_t) * (size_t)places[0]);
      const uint32_t compare = copy[places[0]] + drawn(worker, 2);
      MPI_Compare_and_swap(in, &compare, was, MPI_UNSIGNED, target, first, window->win);
      CHECK(was[0] == copy[places[0]]);
      if (compare == copy[places[0]]) copy[places[0]] = in[0];
    }
  }
  MPI_Type_free(&type);
  MPI_Type_free(&origin);
}

/* The same for elements of 8 bytes, and for a value with an index, which is two runs of memory. */
static void change_others(Worker* worker, int target) {
  static _Thread_local double in[kDoubles], was[kDoubles];
  static _Thread_local Pair pairs[kPairs];
  Window* window = worker->window;
  Slice* copy = &worker->copies[target];
  const size_t begin = slice_begin(rank, worker->thread);
  const int count = 1 + (int)drawn(worker, kPairs), from = (int)drawn(worker, (uint32_t)(kPairs - count + 1));
  const int product = (int)drawn(worker, 2), greatest = (int)drawn(worker, 2);
  for (int i = 0; i < count; ++i) {
    in[i] = product ? (drawn(worker, 2) ? -1 : 1) : (double)drawn(worker, 1000) / 8;
    pairs[i] = (Pair){(double)drawn(worker, 6), (int)drawn(worker, 6)};
  }
  MPI_Get_accumulate(in, count, MPI_DOUBLE, was, count, MPI_DOUBLE, target,
                     displacement(window, target, begin + offsetof(Slice, doubles) + sizeof(double) * (size_t)from),
                     count, MPI_DOUBLE, product ? MPI_PROD : MPI_SUM, window->win);
  for (int i = 0; i < count; ++i) {
    double* there = &copy->doubles[from + i];
    CHECK(was[i] == *there);
    *there = product ? in[i] * *there : in[i] + *there;
  }
  MPI_Accumulate(pairs, count, MPI_DOUBLE_INT, target,
                 displacement(window, target, begin + offsetof(Slice, pairs) + sizeof(Pair) * (size_t)from), count,
                 MPI_DOUBLE_INT, greatest ? MPI_MAXLOC : MPI_MINLOC, window->win);
  for (int i = 0; i < count; ++i) {
    Pair* there = &copy->pairs[from + i];
    if (pairs[i].value == there->value) {
      if (pairs[i].index < there->index) there->index = pairs[i].index;
    } else if ((pairs[i].value > there->value) == greatest) {
      there->value = pairs[i].value;
      there->index = pairs[i].index;
    }
  }
}

static void* work(void* argument) {
  Worker* worker = argument;
  MPI_Win win = worker->window->win;
  for (int i = 0; i < kOperations; ++i) {
    const int target = (int)drawn(worker, (uint32_t)size), kind = (int)drawn(worker, 3);
    if (worker->locks == kLockEach) {
      MPI_Win_lock(kind == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, kind == 2 ? MPI_MODE_NOCHECK : 0, win);
    }
    change_ints(worker, target);
    if (i % 4 == 0) change_others(worker, target);
    if (worker->locks == kLockEach) {
      MPI_Win_unlock(target, win);
    } else if (worker->locks == kLockAll && kind == 0) {
      MPI_Win_flush(target, win);
    }
  }
  return NULL;
}

/* The slices are what the copies say: as their thread gets them, and as the rank that has them sees them. */
static void check_slices(Worker* workers) {
  Window* window = workers[0].window;
  Slice* slice = malloc(sizeof *slice);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int t = 0; t < kThreads; ++t) {
    for (int shift = 0; shift < size; ++shift) {
      const int target = (rank + shift) % size, from = (rank + size - shift) % size;
      MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window->win);
      MPI_Get(slice, sizeof *slice, MPI_BYTE, target, displacement(window, target, slice_begin(rank, t)), sizeof *slice,
              MPI_BYTE, window->win);
      MPI_Win_unlock(target, window->win);
      CHECK(memcmp(slice, &workers[t].copies[target], sizeof *slice) == 0);
      MPI_Sendrecv(&workers[t].copies[target], sizeof *slice, MPI_BYTE, target, 0, slice, sizeof *slice, MPI_BYTE, from,
                   0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Win_sync(window->win);
      CHECK(memcmp(slice, window->memory + slice_begin(from, t), sizeof *slice) == 0);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  free(slice);
}

/* All ranks change the same elements of one rank at once. */
static void change_common(Worker* worker, int target) {
  Window* window = worker->window;
  char *values = window->memory + offsetof(Common, values), *extreme = window->memory + offsetof(Common, least);
  uint32_t own[kOps - 2], all[kOps - 2];
  Pair least = {1e9, 0}, found = {1e9, 0}, there;
  for (int op = 0; op < kOps - 2; ++op) own[op] = applied(op, 1, 1);
  if (rank == target) {
    memcpy(values, own, sizeof own);
    memcpy(extreme, &least, sizeof least);
  }
  MPI_Win_fence(0, window->win);
  for (int turn = 0; turn < 5; ++turn) {
    for (int op = 0; op < kOps - 2; ++op) {
      const uint32_t in = drawn(worker, 3) == 0 ? drawn(worker, 2) : 1 + drawn(worker, 1u << 20);
      MPI_Accumulate(&in, 1, MPI_UNSIGNED, target,
                     displacement(window, target, offsetof(Common, values) + 4 * (size_t)op), 1, MPI_UNSIGNED,
                     op_of(op), window->win);
      own[op] = turn == 0 ? in : applied(op, in, own[op]);
    }
    const Pair in = {(double)drawn(worker, 50), rank};
    MPI_Accumulate(&in, 1, MPI_DOUBLE_INT, target, displacement(window, target, offsetof(Common, least)), 1,
                   MPI_DOUBLE_INT, MPI_MINLOC, window->win);
    if (in.value < least.value) least = in;
  }
  MPI_Win_fence(0, window->win);
  for (int op = 0; op < kOps - 2; ++op) {
    MPI_Allreduce(&own[op], &all[op], 1, MPI_UNSIGNED, op_of(op), MPI_COMM_WORLD);
    all[op] = applied(op, all[op], applied(op, 1, 1));
  }
  MPI_Allreduce(&least, &found, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
  if (rank == target) {
    CHECK(memcmp(values, all, sizeof all) == 0);
    memcpy(&there, extreme, sizeof there);
    CHECK(there.value == found.value && there.index == found.index);
  }
}

static void open_window(Window* window, int flavor, int unit) {
  MPI_Aint base = 0;
  window->flavor = flavor;
  window->unit = unit;
  window->bases = calloc((size_t)size, sizeof *window->bases);
  if (flavor == MPI_WIN_FLAVOR_ALLOCATE) {
    MPI_Win_allocate(memory_bytes(), unit, MPI_INFO_NULL, MPI_COMM_WORLD, &window->memory, &window->win);
  } else { /* not aligned to a double */
    window->memory = (char*)malloc((size_t)memory_bytes() + 4) + 4;
  }
  if (flavor == MPI_WIN_FLAVOR_CREATE) {
    MPI_Win_create(window->memory, memory_bytes(), unit, MPI_INFO_NULL, MPI_COMM_WORLD, &window->win);
  } else if (flavor == MPI_WIN_FLAVOR_DYNAMIC) {
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window->win);
    MPI_Win_attach(window->win, window->memory, memory_bytes());
    MPI_Get_address(window->memory, &base);
  }
  MPI_Allgather(&base, 1, MPI_AINT, window->bases, 1, MPI_AINT, MPI_COMM_WORLD);
  memset(window->memory, 0, (size_t)memory_bytes());
  MPI_Barrier(MPI_COMM_WORLD);
}
static void close_window(Window* window) {
  if (window->flavor == MPI_WIN_FLAVOR_DYNAMIC) MPI_Win_detach(window->win, window->memory);
  MPI_Win_free(&window->win);
  if (window->flavor != MPI_WIN_FLAVOR_ALLOCATE) free(window->memory - 4);
  free(window->bases);
}

static void every_epoch(Window* window, uint64_t seed) {
  Worker workers[kThreads];
  pthread_t other;
  MPI_Group all;
  MPI_Win_get_group(window->win, &all);
  for (int t = 0; t < kThreads; ++t) {
    workers[t] = (Worker){window, t, kNoLock, seed * 1000 + (uint64_t)(10 * rank + t + 1), NULL};
    workers[t].copies = calloc((size_t)size, sizeof(Slice));
  }
  MPI_Win_fence(0, window->win);
  work(&workers[0]);
  MPI_Win_fence(0, window->win);
  check_slices(workers);
  workers[0].locks = workers[1].locks = kLockAll;
  MPI_Win_lock_all(0, window->win);
  pthread_create(&other, NULL, work, &workers[1]);
  work(&workers[0]);
  pthread_join(other, NULL);
  MPI_Win_unlock_all(window->win);
  check_slices(workers);
  workers[1].locks = kLockEach;
  work(&workers[1]);
  check_slices(workers);
  workers[0].locks = kNoLock;
  MPI_Win_post(all, 0, window->win);
  MPI_Win_start(all, 0, window->win);
  work(&workers[0]);
  MPI_Win_complete(window->win);
  MPI_Win_wait(window->win);
  check_slices(workers);
  for (int target = 0; target < size; ++target) change_common(&workers[0], target);
  for (int t = 0; t < kThreads; ++t) free(workers[t].copies);
  MPI_Group_free(&all);
}

/* Sizes around those at which a transfer takes another way, or is cut: of messages, requests and runs. */
static void sizes(void) {
  enum { kMost = 4 << 20 };
  static const size_t kSizes[] = {1,     2,     3,      8,       63,      64,      65,      4095,      4096, 4097,
                                  65535, 65537, 262145, 1048575, 1048576, 1048577, 2097155, kMost - 1, kMost};
  unsigned char *memory, *out = malloc(kMost), *in = malloc(kMost);
  const int next = (rank + 1) % size, last = (rank + size - 1) % size;
  MPI_Datatype every;
  MPI_Win win;
  MPI_Win_allocate(kMost, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  for (size_t s = 0; s < sizeof kSizes / sizeof *kSizes; ++s) {
    const int bytes = (int)kSizes[s], at = kMost - bytes;
    for (int i = 0; i < bytes; ++i) out[i] = (unsigned char)(i * 7 + i / 251 + rank + bytes);
    MPI_Win_fence(0, win);
    memset(memory, 0, kMost);
    MPI_Win_fence(0, win);
    MPI_Put(out, bytes, MPI_BYTE, next, at, bytes, MPI_BYTE, win);
    MPI_Get(in, bytes, MPI_BYTE, next, at, bytes, MPI_BYTE, win);
    CHECK(memcmp(in, out, (size_t)bytes) == 0);
    MPI_Get_accumulate(out, bytes, MPI_UNSIGNED_CHAR, in, bytes, MPI_UNSIGNED_CHAR, next, at, bytes, MPI_UNSIGNED_CHAR,
                       MPI_SUM, win);
    CHECK(memcmp(in, out, (size_t)bytes) == 0);
    MPI_Win_fence(0, win);
    for (int i = 0; i < at; ++i) CHECK(memory[i] == 0);
    for (int i = 0; i < bytes; ++i) {
      CHECK(memory[at + i] == (unsigned char)(2 * (unsigned char)(i * 7 + i / 251 + last + bytes)));
    }
  }
  /* Elements, more than one request takes. */
  uint32_t *words = (uint32_t*)out, *sums = (uint32_t*)memory;
  for (uint32_t i = 0; i < kMost / 4; ++i) words[i] = i * 2654435761u + (uint32_t)rank;
  memset(memory, 0, kMost);
  MPI_Win_fence(0, win);
  MPI_Accumulate(words, kMost / 4, MPI_UNSIGNED, next, 0, kMost / 4, MPI_UNSIGNED, MPI_SUM, win);
  MPI_Win_fence(0, win);
  for (uint32_t i = 0; i < kMost / 4; ++i) CHECK(sums[i] == i * 2654435761u + (uint32_t)last);
  /* Runs of 3 bytes, more than one request takes; and of 8 and 4 bytes in turn, of which a request has whole ones. */
  for (int runs = 8191; runs <= 20000; runs += runs < 8193 ? 1 : 11807) {
    MPI_Type_vector(runs, 3, 5, MPI_BYTE, &every);
    MPI_Type_commit(&every);
    for (int i = 0; i < 3 * runs; ++i) out[i] = (unsigned char)(i + i / 253 + rank);
    MPI_Win_fence(0, win);
    memset(memory, 0, kMost);
    MPI_Win_fence(0, win);
    MPI_Put(out, 3 * runs, MPI_BYTE, next, 1, 1, every, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 5 * runs - 2; ++i) {
      const int byte = i / 5 * 3 + i % 5;
      CHECK(memory[1 + i] == (i % 5 < 3 ? (unsigned char)(byte + byte / 253 + last) : 0));
    }
    MPI_Get(in, 3 * runs, MPI_BYTE, next, 1, 1, every, win);
    CHECK(memcmp(in, out, (size_t)(3 * runs)) == 0);
    MPI_Win_fence(0, win);
    memset(memory, 0, kMost);
    MPI_Win_fence(0, win);
    Pair* pairs = (Pair*)out;
    for (int i = 0; i < runs; ++i) pairs[i] = (Pair){i % 100 + 1, i};
    MPI_Accumulate(pairs, runs, MPI_DOUBLE_INT, next, 0, runs, MPI_DOUBLE_INT, MPI_MAXLOC, win);
    MPI_Win_fence(0, win);
    pairs = (Pair*)memory;
    for (int i = 0; i < runs; ++i) CHECK(pairs[i].value == i % 100 + 1 && pairs[i].index == i);
    MPI_Type_free(&every);
  }
  MPI_Win_free(&win);
  free(out);
  free(in);
}

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  int provided;
  Window windows[3];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  CHECK(provided == MPI_THREAD_MULTIPLE);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0) fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
  open_window(&windows[0], MPI_WIN_FLAVOR_CREATE, 4);
  open_window(&windows[1], MPI_WIN_FLAVOR_ALLOCATE, 1);
  open_window(&windows[2], MPI_WIN_FLAVOR_DYNAMIC, 1);
  for (int i = 0; i < 3; ++i) every_epoch(&windows[i], seed + (uint64_t)i);
  for (int i = 0; i < 3; ++i) close_window(&windows[i]);
  sizes();
  printf("rank %d of %d: fine\n", rank, size);
  MPI_Finalize();
  return 0;
}
