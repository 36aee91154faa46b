/* Files: views, positions, errors, what lies in the file after each; by all ranks on one file. Prints "rank R of N:
   fine".

       files NAME          NAME: of a file that is not there yet
       files NAME die      the last rank dies while all have the file open */

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/mpi/check.h"

enum { kInts = 6, kAll = 64 };
static const char* name;

/* What lies in the file, by the system's own calls. */
static long on_disk(long at, void* to, size_t bytes) {
  const int file = open(name, O_RDONLY);
  const long got = pread(file, to, bytes, at);
  close(file);
  return got;
}

static MPI_File opened(int mode) {
  MPI_File file;
  CHECK(MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
  CHECK(file != MPI_FILE_NULL);
  return file;
}
static MPI_File fresh(void) {
  MPI_File file = opened(MPI_MODE_RDWR | MPI_MODE_CREATE);
  CHECK(MPI_File_set_size(file, 0) == MPI_SUCCESS);
  return file;
}
static void closed(MPI_File* file) {
  CHECK(MPI_File_close(file) == MPI_SUCCESS);
  CHECK(*file == MPI_FILE_NULL);
}
static int count_in(MPI_Status* status, MPI_Datatype type) {
  int count = 0;
  MPI_Get_count(status, type, &count);
  return count;
}

/* At offsets, blocking and not; a read at the end of the file tells how much it got. */
static void offsets(void) {
  MPI_File file = fresh();
  MPI_Status status;
  MPI_Request requests[2];
  MPI_Offset bytes = 0;
  int out[kInts], in[2 * kInts];
  for (int i = 0; i < kInts; ++i) out[i] = 100 * rank + i;
  const MPI_Offset at = (MPI_Offset)(rank * (int)sizeof out);
  MPI_File_write_at(file, at, out, kInts / 2, MPI_INT, &status);
  CHECK(count_in(&status, MPI_INT) == kInts / 2);
  MPI_File_iwrite_at_all(file, at + (MPI_Offset)sizeof out / 2, out + kInts / 2, kInts / 2, MPI_INT, &requests[0]);
  MPI_Wait(&requests[0], &status);
  CHECK(count_in(&status, MPI_INT) == kInts / 2);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(on_disk(at, in, sizeof out) == sizeof out && memcmp(in, out, sizeof out) == 0);
  MPI_File_get_size(file, &bytes);
  CHECK(bytes == size * (MPI_Offset)sizeof out);
  MPI_File_iread_at(file, at, in, 1, MPI_INT, &requests[0]);
  MPI_File_iread_at(file, at + 4, in + 1, kInts - 1, MPI_INT, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  CHECK(memcmp(in, out, sizeof out) == 0);
  MPI_File_read_at_all(file, (size - 1) * (MPI_Offset)sizeof out, in, 2 * kInts, MPI_INT, &status);
  CHECK(count_in(&status, MPI_INT) == kInts && in[1] == 100 * (size - 1) + 1);
  MPI_File_read_at(file, bytes, in, 1, MPI_INT, &status);
  CHECK(count_in(&status, MPI_INT) == 0);
  MPI_File_preallocate(file, bytes + 5);
  MPI_File_preallocate(file, 1);
  MPI_File_get_size(file, &bytes);
  CHECK(bytes == size * (MPI_Offset)sizeof out + 5);
  closed(&file);
}

/* Ranks take turns in the file, from a header on; in memory every second int is data. */
static void views(void) {
  MPI_File file = fresh();
  MPI_Datatype turns, padded, etype, filetype;
  MPI_Offset at = 0;
  MPI_Status status;
  char representation[MPI_MAX_DATAREP_STRING];
  int out[2 * kInts], in[2 * kInts], all[kAll], header = 7;
  MPI_Type_create_resized(MPI_INT, 0, size * (MPI_Aint)sizeof(int), &turns);
  MPI_Type_commit(&turns);
  MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &padded);
  MPI_Type_commit(&padded);
  if (rank == 0) MPI_File_write(file, &header, 1, MPI_INT, MPI_STATUS_IGNORE);
  CHECK(MPI_File_set_view(file, (rank + 1) * (MPI_Offset)sizeof(int), MPI_INT, turns, "native", MPI_INFO_NULL) ==
        MPI_SUCCESS);
  MPI_File_get_view(file, &at, &etype, &filetype, representation);
  CHECK(at == (rank + 1) * (MPI_Offset)sizeof(int) && etype == MPI_INT && strcmp(representation, "native") == 0);
  MPI_Type_free(&filetype);
  for (int i = 0; i < 2 * kInts; ++i) out[i] = 100 * rank + i;
  MPI_File_write_all(file, out, kInts, padded, &status);
  CHECK(count_in(&status, padded) == kInts);
  MPI_File_get_position(file, &at);
  CHECK(at == kInts);
  MPI_File_get_byte_offset(file, 2, &at);
  CHECK(at == (1 + rank + 2 * size) * (MPI_Offset)sizeof(int));
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(on_disk(0, all, sizeof all) == (1 + kInts * size) * (long)sizeof(int) && all[0] == header);
  for (int i = 0; i < kInts * size; ++i) CHECK(all[1 + i] == 100 * (i % size) + 2 * (i / size));
  memset(in, 0, sizeof in);
  MPI_File_seek(file, -kInts, MPI_SEEK_END);
  MPI_File_read(file, in, kInts + 3, MPI_INT, &status);
  CHECK(count_in(&status, MPI_INT) == kInts);
  for (int i = 0; i < kInts; ++i) CHECK(in[i] == 100 * rank + 2 * i);
  MPI_File_get_position(file, &at);
  CHECK(at == kInts);
  MPI_File_seek(file, 1 - kInts, MPI_SEEK_CUR);
  MPI_File_read_all_begin(file, in, 2, padded);
  MPI_File_read_all_end(file, in, &status);
  CHECK(count_in(&status, padded) == 2 && in[0] == 100 * rank + 2 && in[2] == 100 * rank + 4);
  CHECK(class_of(MPI_File_seek(file, -1, MPI_SEEK_SET)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_File_write_at(file, (MPI_Offset)1 << 62, out, 1, MPI_INT, &status)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_SHORT, "native", MPI_INFO_NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "mine", MPI_INFO_NULL)) == MPI_ERR_UNSUPPORTED_DATAREP);
  /* A mistake of one rank is an error of all. */
  MPI_Datatype wrong = rank == 0 ? MPI_SHORT : MPI_INT, null = rank == size - 1 ? MPI_DATATYPE_NULL : MPI_INT;
  CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, wrong, "native", MPI_INFO_NULL)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, null, "native", MPI_INFO_NULL)) == MPI_ERR_TYPE);
  CHECK(class_of(MPI_File_set_size(file, rank == size - 1 ? -1 : 0)) == MPI_ERR_ARG);
  MPI_Barrier(MPI_COMM_WORLD);
  closed(&file);
  MPI_Type_free(&turns);
  MPI_Type_free(&padded);
}

/* Many short runs, some of them past the end of the file. */
static void runs(void) {
  enum { kRuns = 20000 };
  MPI_File file = fresh();
  MPI_Datatype every;
  MPI_Status status;
  short *out = malloc(3 * kRuns * sizeof *out), *in = calloc(kRuns, sizeof *in);
  for (int i = 0; i < 3 * kRuns; ++i) out[i] = (short)i;
  MPI_File_write_at_all(file, 0, out, rank == 0 ? 3 * kRuns - 30 : 0, MPI_SHORT, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Type_create_resized(MPI_SHORT, 0, 3 * sizeof(short), &every);
  MPI_Type_commit(&every);
  MPI_File_set_view(file, 2, MPI_SHORT, every, "native", MPI_INFO_NULL);
  MPI_File_read_all(file, in, kRuns, MPI_SHORT, &status);
  CHECK(count_in(&status, MPI_SHORT) == kRuns - 10);
  for (int i = 0; i < kRuns - 10; ++i) CHECK(in[i] == (short)(3 * i + 1));
  CHECK(in[kRuns - 10] == 0);
  closed(&file);
  MPI_Type_free(&every);
  free(out);
  free(in);
}

/* Tiles that lie among each other, in a file that is open for reading; the last one is read in part. */
static void interleaved(void) {
  enum { kFar = 100 };
  const int ones[2] = {1, 1}, at[2] = {0, kFar};
  int out[kFar + 2], in[3] = {-1, -1, -1};
  MPI_File file = fresh();
  MPI_Datatype both, tile;
  MPI_Status status;
  for (int i = 0; i < kFar + 2; ++i) out[i] = i;
  if (rank == 0) MPI_File_write_at(file, 0, out, kFar + 2, MPI_INT, MPI_STATUS_IGNORE);
  closed(&file);
  file = opened(MPI_MODE_RDONLY);
  MPI_Type_indexed(2, ones, at, MPI_INT, &both);
  MPI_Type_create_resized(both, 0, sizeof(int), &tile);
  MPI_Type_commit(&tile);
  CHECK(MPI_File_set_view(file, 0, MPI_INT, tile, "native", MPI_INFO_NULL) == MPI_SUCCESS);
  CHECK(MPI_File_read(file, in, 3, MPI_INT, &status) == MPI_SUCCESS);
  CHECK(count_in(&status, MPI_INT) == 3 && in[0] == 0 && in[1] == kFar && in[2] == 1);
  closed(&file);
  MPI_Type_free(&both);
  MPI_Type_free(&tile);
}

static void external(void) {
  MPI_File file = fresh();
  MPI_Aint extent = 0;
  MPI_Status status;
  const long out[2] = {-2 - rank, 258};
  long in[2] = {0, 0};
  unsigned char bytes[8];
  CHECK(MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL) == MPI_SUCCESS);
  MPI_File_get_type_extent(file, MPI_LONG, &extent);
  CHECK(extent == 4);
  MPI_File_write_at(file, 2 * rank, out, 2, MPI_LONG, &status);
  CHECK(count_in(&status, MPI_LONG) == 2);
  CHECK(on_disk(8 * rank, bytes, 8) == 8 && bytes[0] == 0xff && bytes[3] == 0xfe - rank && bytes[4] == 0);
  CHECK(bytes[6] == 1 && bytes[7] == 2);
  MPI_File_read_at(file, 2 * rank, in, 2, MPI_LONG, &status);
  CHECK(count_in(&status, MPI_LONG) == 2 && in[0] == out[0] && in[1] == out[1]);
  closed(&file);
}

/* Each place is taken once; in the order of ranks where a call says so. */
static void shared(void) {
  MPI_File file = fresh();
  MPI_Offset at = -1;
  MPI_Request request;
  MPI_Status status;
  int out[2] = {rank, rank}, in[kAll], seen[kAll] = {0};
  MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  for (int turn = 0; turn < 2; ++turn) MPI_File_write_shared(file, out, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_iwrite_shared(file, out, 1, MPI_INT, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(on_disk(0, in, sizeof in) == 3 * size * (long)sizeof(int));
  for (int i = 0; i < 3 * size; ++i) ++seen[in[i]];
  for (int r = 0; r < size; ++r) CHECK(seen[r] == 3);
  MPI_File_get_position_shared(file, &at);
  CHECK(at == 3 * size);
  MPI_File_seek_shared(file, -2 * size, MPI_SEEK_END);
  MPI_File_write_ordered(file, out, 1 + rank % 2, MPI_INT, &status);
  CHECK(count_in(&status, MPI_INT) == 1 + rank % 2);
  /* One rank's mistake is an error on all, which moves nothing. */
  CHECK(MPI_File_write_ordered(file, out, rank == 0 ? -1 : 1, MPI_INT, &status) != MPI_SUCCESS);
  CHECK(MPI_File_write_ordered_begin(file, out, rank == size - 1 ? -1 : 1, MPI_INT) != MPI_SUCCESS);
  MPI_File_write_ordered_begin(file, out, 1, MPI_INT);
  MPI_File_write_ordered_end(file, out, MPI_STATUS_IGNORE);
  MPI_File_seek_shared(file, size, MPI_SEEK_SET);
  MPI_File_read_ordered(file, in, 1 + rank % 2, MPI_INT, MPI_STATUS_IGNORE);
  CHECK(in[0] == rank && (rank % 2 == 0 || in[1] == rank));
  MPI_File_read_ordered(file, in, 1, MPI_INT, &status);
  CHECK(in[0] == rank && count_in(&status, MPI_INT) == 1);
  MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  MPI_File_get_position_shared(file, &at);
  CHECK(at == 0);
  MPI_Barrier(MPI_COMM_WORLD);
  closed(&file);
}

/* The shared position that a collective call starts from is behind what each rank did before that call. */
static void shared_behind_all(void) {
  enum { kTurns = 50 };
  MPI_File file = fresh();
  MPI_Datatype etype, filetype;
  MPI_Offset at = -1;
  char representation[MPI_MAX_DATAREP_STRING];
  MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  for (int turn = 1; turn <= kTurns; ++turn) {
    if (rank != 0) MPI_File_write_shared(file, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    CHECK(MPI_File_seek_shared(file, 0, MPI_SEEK_CUR) == MPI_SUCCESS);
    MPI_File_get_position_shared(file, &at);
    CHECK(at == turn * (size - 1));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  CHECK(class_of(MPI_File_seek_shared(file, -1, MPI_SEEK_SET)) == MPI_ERR_ARG);
  closed(&file);

  file = opened(MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
  for (int turn = 1; turn <= kTurns; ++turn) {
    if (rank != 0) MPI_File_write_shared(file, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    CHECK(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_File_get_view(file, &at, &etype, &filetype, representation);
    CHECK(at == turn * (size - 1) * (MPI_Offset)sizeof(int));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  closed(&file);
}

/* What all threads of all ranks write at once is there of one thread. */
static MPI_File atomic_file;
static void* write_and_read(void* thread) {
  enum { kBytes = 1 << 16 };
  char *out = malloc(kBytes), *in = malloc(kBytes);
  memset(out, 'a' + 2 * rank + (int)(size_t)thread, kBytes);
  for (int turn = 0; turn < 20; ++turn) {
    MPI_File_write_at(atomic_file, 0, out, kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(atomic_file, 0, in, kBytes, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 1; i < kBytes; ++i) CHECK(in[i] == in[0]);
  }
  free(out);
  free(in);
  return NULL;
}
static void atomicity(void) {
  pthread_t other;
  int flag = 0;
  atomic_file = fresh();
  MPI_File_set_atomicity(atomic_file, 1);
  MPI_File_get_atomicity(atomic_file, &flag);
  CHECK(flag == 1);
  pthread_create(&other, NULL, write_and_read, (void*)1);
  write_and_read(NULL);
  pthread_join(other, NULL);
  closed(&atomic_file);
}

/* A read whose last byte does not lie behind the others locks all of them, so that a write does not come between. */
static void atomicity_of_interleaved(void) {
  enum { kHalf = 1 << 10, kReads = 20, kWrites = 400 };
  const int ones[2] = {1, 1}, at[2] = {0, kHalf};
  char bytes[2 * kHalf];
  MPI_File file = fresh(), reader;
  MPI_Datatype both, tile;
  memset(bytes, 'a', sizeof bytes);
  MPI_File_set_atomicity(file, 1);
  MPI_File_write_at(file, 0, bytes, sizeof bytes, MPI_BYTE, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  reader = opened(MPI_MODE_RDONLY);
  MPI_File_set_atomicity(reader, 1);
  MPI_Type_indexed(2, ones, at, MPI_BYTE, &both);
  MPI_Type_create_resized(both, 0, 1, &tile);
  MPI_Type_commit(&tile);
  MPI_File_set_view(reader, 0, MPI_BYTE, tile, "native", MPI_INFO_NULL);
  for (int turn = 0; rank != 0 && turn < kWrites; ++turn) {
    memset(bytes, 'a' + turn % 26, kHalf);
    MPI_File_write_at(file, kHalf, bytes, kHalf, MPI_BYTE, MPI_STATUS_IGNORE);
  }
  for (int turn = 0; rank == 0 && turn < kReads; ++turn) {
    MPI_File_read_at(reader, 0, bytes, 2 * kHalf - 1, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2 * kHalf - 1; ++i) CHECK(bytes[i] == (i % 2 == 0 ? 'a' : bytes[1]));
  }
  closed(&reader);
  closed(&file);
  MPI_Type_free(&both);
  MPI_Type_free(&tile);
}

static int called = 0;
static MPI_File of;
static void count_call(MPI_File* file, int* error, ...) {
  called += *file == of && class_of(*error) == MPI_ERR_READ_ONLY;
}

/* They return, to the handler of the file or of none; and what the modes promise. */
static void errors(void) {
  MPI_File file = MPI_FILE_NULL, other;
  MPI_Errhandler handler;
  MPI_Offset at = 0;
  MPI_Group group;
  int value = 5, mode = 0, ranks = 0;
  CHECK(class_of(MPI_File_open(MPI_COMM_WORLD, "/no/such/folder", MPI_MODE_RDONLY, MPI_INFO_NULL, &file)) ==
        MPI_ERR_NO_SUCH_FILE);
  CHECK(class_of(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file)) ==
        MPI_ERR_AMODE);
  CHECK(class_of(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL,
                               &file)) == MPI_ERR_FILE_EXISTS);
  if (size > 1) {
    CHECK(class_of(MPI_File_open(MPI_COMM_WORLD, name, rank == 0 ? MPI_MODE_RDWR : MPI_MODE_RDONLY, MPI_INFO_NULL,
                                 &file)) == MPI_ERR_NOT_SAME);
  }
  CHECK(class_of(MPI_File_read(MPI_FILE_NULL, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_FILE);

  file = opened(MPI_MODE_RDONLY);
  of = file;
  CHECK(class_of(MPI_File_write(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_READ_ONLY);
  MPI_File_create_errhandler(count_call, &handler);
  MPI_File_set_errhandler(file, handler);
  MPI_Errhandler_free(&handler);
  MPI_File_write(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
  CHECK(called == 1);
  MPI_File_get_amode(file, &mode);
  CHECK(mode == MPI_MODE_RDONLY);
  MPI_File_get_group(file, &group);
  MPI_Group_size(group, &ranks);
  CHECK(ranks == size);
  MPI_Group_free(&group);
  closed(&file);

  file = fresh();
  MPI_File_write_at_all(file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
  closed(&file);
  file = opened(MPI_MODE_WRONLY | MPI_MODE_APPEND | MPI_MODE_DELETE_ON_CLOSE);
  CHECK(class_of(MPI_File_read(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_ACCESS);
  MPI_File_get_position(file, &at);
  CHECK(at == sizeof value);
  MPI_File_get_position_shared(file, &at);
  CHECK(at == sizeof value);
  CHECK(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &other) ==
        MPI_SUCCESS);
  CHECK(class_of(MPI_File_write_at(other, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_UNSUPPORTED_OPERATION);
  closed(&other);
  closed(&file);
  CHECK(access(name, F_OK) != 0);
  CHECK(class_of(MPI_File_delete(name, MPI_INFO_NULL)) == MPI_ERR_NO_SUCH_FILE);
}

/* How many descriptors this process has of the file. */
static int descriptors(const struct stat* file) {
  struct stat one;
  int count = 0;
  for (int i = 0; i < 1024; ++i)
    count += fstat(i, &one) == 0 && one.st_dev == file->st_dev && one.st_ino == file->st_ino;
  return count;
}
/* A file whose ranks do not all live is closed all the same, and what was beside it is gone. */
static void dies(void) {
  struct stat of;
  MPI_File file = fresh();
  MPI_File_write_shared(file, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
  CHECK(stat(name, &of) == 0 && descriptors(&of) == 1);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == size - 1) _exit(0);
  CHECK(MPI_File_close(&file) != MPI_SUCCESS && file == MPI_FILE_NULL);
  CHECK(descriptors(&of) == 0);
  MPI_File_delete(name, MPI_INFO_NULL); /* by one of them */
  printf("rank %d of %d: fine\n", rank, size);
}

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  name = argv[1];
  if (argc > 2) {
    dies();
    MPI_Finalize();
    return 0;
  }
  offsets();
  views();
  runs();
  interleaved();
  external();
  shared();
  shared_behind_all();
  atomicity();
  atomicity_of_interleaved();
  errors();
  printf("rank %d of %d: fine\n", rank, size);
  MPI_Finalize();
  return 0;
}
