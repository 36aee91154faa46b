#ifndef RONDO_H_
#define RONDO_H_

/* Rondo's C API. Handles are opaque; every function returns a rondo_result_t, and rondo_last_error() is the text of
 * this thread's last failure. No exception crosses it. Thread rules, buffers and errors are those of the C++
 * Communicator (communicator.h). All counts are elements unless they say bytes. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_API __attribute__((visibility("default")))

typedef struct rondo_comm* rondo_comm_t;
typedef struct rondo_work* rondo_work_t;
typedef struct rondo_id_server* rondo_id_server_t;

/* The types of enumerated arguments are plain integers, so that their size is the same for every compiler and binding,
 * and a value that is none of these is an error to report, not undefined behaviour. */
typedef int32_t rondo_result_t;
enum {
  RONDO_OK = 0,
  RONDO_INVALID = 1,
  RONDO_MISMATCH = 2,
  RONDO_TIMEOUT = 3,
  RONDO_PEER_LOST = 4,
  RONDO_ABORTED = 5,
  RONDO_PROTOCOL = 6,
  RONDO_NETWORK = 7,
  RONDO_BOOTSTRAP = 8,
  RONDO_SYSTEM = 9,
  RONDO_UNSUPPORTED = 10,
  RONDO_INTERNAL = 11,
  RONDO_CLOSED = 12,
  RONDO_PEER_LEFT = 13,
  RONDO_IN_PROGRESS = 100 /* rondo_wait with a timeout: not done yet; no error */
};

typedef int32_t rondo_dtype_t;
enum {
  RONDO_INT8 = 0,
  RONDO_UINT8 = 1,
  RONDO_INT16 = 2,
  RONDO_UINT16 = 3,
  RONDO_INT32 = 4,
  RONDO_UINT32 = 5,
  RONDO_INT64 = 6,
  RONDO_UINT64 = 7,
  RONDO_FLOAT16 = 8,
  RONDO_BFLOAT16 = 9,
  RONDO_FLOAT32 = 10,
  RONDO_FLOAT64 = 11,
  RONDO_BOOL = 12,
  RONDO_FLOAT8_E4M3 = 13, /* no infinity: overflow is NaN */
  RONDO_FLOAT8_E5M2 = 14
};

typedef int32_t rondo_op_t;
enum {
  RONDO_SUM = 0,
  RONDO_PRODUCT = 1,
  RONDO_MIN = 2,
  RONDO_MAX = 3,
  RONDO_AVG = 4,
  RONDO_BAND = 5,
  RONDO_BOR = 6,
  RONDO_BXOR = 7,
  RONDO_LAND = 8,
  RONDO_LOR = 9,
  RONDO_LXOR = 10,
  RONDO_PREMULSUM = 11
};

#define RONDO_ANY_SOURCE (-1)
#define RONDO_ANY_TAG (-1)

/* The library's version as "major.minor.patch". */
RONDO_API const char* rondo_version(void);
/* This thread's last failure; "" if there was none. Valid until this thread's next rondo call. */
RONDO_API const char* rondo_last_error(void);
/* "OK", "INVALID", ... */
RONDO_API const char* rondo_result_name(rondo_result_t result);
/* Ranks blamed by this thread's last failure: copies up to `capacity` of them to ranks and returns how many there are.
 */
RONDO_API size_t rondo_last_error_ranks(int* ranks, size_t capacity);

/* Joins the group that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or a launcher's own). */
RONDO_API rondo_result_t rondo_init(rondo_comm_t* comm);
/* The same with the place given: rank, world (-1: from the environment) and a rendezvous ("tcp://host:port",
 * "file:///path", "unix:///path", "unique:..."; NULL: from the environment). */
RONDO_API rondo_result_t rondo_init_at(rondo_comm_t* comm, int rank, int world, const char* rendezvous);

/* A unique id: made by any process (it need not become a rank), handed to all ranks as a string, and served by a thread
 * of the maker until all ranks have said goodbye to it, at the end of their start, or the server is destroyed. `id` is
 * valid until the server is destroyed. host: the address to
 * listen on and to publish; NULL is 127.0.0.1. */
RONDO_API rondo_result_t rondo_id_server_create(rondo_id_server_t* server, const char* host, const char** id);
RONDO_API rondo_result_t rondo_id_server_destroy(rondo_id_server_t server);

/* comms[0 .. world-1]: ranks as threads of this process, one thread a rank; world: 1 .. 1024. RONDO_* are read. */
RONDO_API rondo_result_t rondo_init_inproc(rondo_comm_t* comms, int world);

/* Rank and size of this communicator; local rank and size, and the node: of the process in the job, the same for all
 * of its communicators. */
RONDO_API rondo_result_t rondo_rank(rondo_comm_t comm, int* rank);
RONDO_API rondo_result_t rondo_size(rondo_comm_t comm, int* size);
RONDO_API rondo_result_t rondo_local_rank(rondo_comm_t comm, int* local_rank);
RONDO_API rondo_result_t rondo_local_size(rondo_comm_t comm, int* local_size);
RONDO_API rondo_result_t rondo_node(rondo_comm_t comm, int* node, int* nodes);

/* Collectives. work NULL: blocking. Otherwise the call returns at once, and *work is to be passed to rondo_wait and
 * then to rondo_work_free. timeout_ms in rondo_options_t 0: RONDO_TIMEOUT_MS. options NULL: defaults. */
typedef struct {
  size_t struct_bytes; /* sizeof(rondo_options_t) of the caller, so that fields can be added */
  int64_t timeout_ms;
  double scalar;         /* RONDO_PREMULSUM: this rank's factor */
  const char* algorithm; /* NULL or "auto", or a name that RONDO_ALGORITHM takes, such as "ring" */
} rondo_options_t;
#define RONDO_OPTIONS_INIT \
  { sizeof(rondo_options_t), 0, 1.0, NULL }

/* count: elements. all_reduce, reduce, broadcast: of the whole buffer. all_gather, gather: input count, output size x
 * count by rank (gather: on the root; elsewhere it may be NULL). reduce_scatter, scatter: input size x count (scatter:
 * on the root; elsewhere it may be NULL), output count. all_to_all: both size x count; block r of the input goes to
 * rank r. RONDO_INVALID: a NULL buffer that would be used, a root that is no rank, an operation that the type lacks, a
 * negative timeout. */
RONDO_API rondo_result_t rondo_all_reduce(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                          rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options,
                                          rondo_work_t* work);
RONDO_API rondo_result_t rondo_reduce(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                      rondo_dtype_t dtype, rondo_op_t op, int root, const rondo_options_t* options,
                                      rondo_work_t* work);
RONDO_API rondo_result_t rondo_broadcast(rondo_comm_t comm, void* buffer, uint64_t count, rondo_dtype_t dtype, int root,
                                         const rondo_options_t* options, rondo_work_t* work);
RONDO_API rondo_result_t rondo_all_gather(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                          rondo_dtype_t dtype, const rondo_options_t* options, rondo_work_t* work);
RONDO_API rondo_result_t rondo_reduce_scatter(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                              rondo_dtype_t dtype, rondo_op_t op, const rondo_options_t* options,
                                              rondo_work_t* work);
RONDO_API rondo_result_t rondo_gather(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                      rondo_dtype_t dtype, int root, const rondo_options_t* options,
                                      rondo_work_t* work);
RONDO_API rondo_result_t rondo_scatter(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                       rondo_dtype_t dtype, int root, const rondo_options_t* options,
                                       rondo_work_t* work);
RONDO_API rondo_result_t rondo_all_to_all(rondo_comm_t comm, const void* input, void* output, uint64_t count,
                                          rondo_dtype_t dtype, const rondo_options_t* options, rondo_work_t* work);
RONDO_API rondo_result_t rondo_barrier(rondo_comm_t comm, const rondo_options_t* options, rondo_work_t* work);

/* Uneven counts; arrays hold one entry a rank; displacements may be NULL (blocks one after the other). all_gather_v,
 * reduce_scatter_v: the same counts on all ranks, else RONDO_MISMATCH. The others: what a rank sends itself is what it
 * expects, else RONDO_INVALID. */
RONDO_API rondo_result_t rondo_all_gather_v(rondo_comm_t comm, const void* input, void* output, const uint64_t* counts,
                                            const uint64_t* displacements, rondo_dtype_t dtype,
                                            const rondo_options_t* options, rondo_work_t* work);
RONDO_API rondo_result_t rondo_reduce_scatter_v(rondo_comm_t comm, const void* input, void* output,
                                                const uint64_t* counts, rondo_dtype_t dtype, rondo_op_t op,
                                                const rondo_options_t* options, rondo_work_t* work);
RONDO_API rondo_result_t rondo_gather_v(rondo_comm_t comm, const void* input, uint64_t count, void* output,
                                        const uint64_t* counts, const uint64_t* displacements, rondo_dtype_t dtype,
                                        int root, const rondo_options_t* options, rondo_work_t* work);
RONDO_API rondo_result_t rondo_scatter_v(rondo_comm_t comm, const void* input, const uint64_t* counts,
                                         const uint64_t* displacements, void* output, uint64_t count,
                                         rondo_dtype_t dtype, int root, const rondo_options_t* options,
                                         rondo_work_t* work);
RONDO_API rondo_result_t rondo_all_to_all_v(rondo_comm_t comm, const void* input, const uint64_t* send_counts,
                                            const uint64_t* send_displacements, void* output,
                                            const uint64_t* recv_counts, const uint64_t* recv_displacements,
                                            rondo_dtype_t dtype, const rondo_options_t* options, rondo_work_t* work);

/* all_reduce of every tensor of a list, the same on all ranks: small tensors share operations of at most
 * RONDO_BUCKET_BYTES, large ones run where they lie. In place: input == output. No output may overlap another tensor.
 */
typedef struct {
  const void* input;
  void* output;
  uint64_t count;
  rondo_dtype_t dtype;
} rondo_tensor_t;
RONDO_API rondo_result_t rondo_all_reduce_many(rondo_comm_t comm, const rondo_tensor_t* tensors, size_t tensor_count,
                                               rondo_op_t op, const rondo_options_t* options, rondo_work_t* work);

/* Call groups (Communicator::group_start): calls of this thread on this communicator between start and end are checked,
 * kept, and submitted together at the end, consecutive all_reduces as rondo_all_reduce_many does them. A call with a
 * work gives the call group's (send and recv: their own), to be used when the call group has ended. A message asked of
 * recv or sendrecv is empty: peer and tag -1, 0 bytes. Abandoning forgets the calls; without a call group it does
 * nothing. rondo_group_end closes the call group whatever it returns; work NULL: it waits for all of it. At most 65,536
 * calls. */
RONDO_API rondo_result_t rondo_group_start(rondo_comm_t comm);
RONDO_API rondo_result_t rondo_group_end(rondo_comm_t comm, rondo_work_t* work);
RONDO_API rondo_result_t rondo_group_abandon(rondo_comm_t comm);

/* Point to point. work NULL: blocking. */
RONDO_API rondo_result_t rondo_send(rondo_comm_t comm, const void* data, uint64_t count, rondo_dtype_t dtype, int peer,
                                    int tag, const rondo_options_t* options, rondo_work_t* work);
typedef struct {
  int peer;
  int tag;
  uint64_t bytes;
} rondo_message_t;
/* message may be NULL; with work, ask rondo_work_message instead. */
RONDO_API rondo_result_t rondo_recv(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, int peer,
                                    int tag, const rondo_options_t* options, rondo_message_t* message,
                                    rondo_work_t* work);
RONDO_API rondo_result_t rondo_sendrecv(rondo_comm_t comm, const void* send_data, uint64_t send_count, int to,
                                        void* recv_data, uint64_t recv_count, int from, rondo_dtype_t dtype, int tag,
                                        const rondo_options_t* options, rondo_message_t* message);

/* timeout_ms < 0: until the operation ends; RONDO_IN_PROGRESS: the wait ran out. */
RONDO_API rondo_result_t rondo_wait(rondo_work_t work, int64_t timeout_ms);
RONDO_API rondo_result_t rondo_test(rondo_work_t work, int* done);
RONDO_API rondo_result_t rondo_work_message(rondo_work_t work, rondo_message_t* message);
/* Frees the handle; an operation still under way goes on by itself. */
RONDO_API rondo_result_t rondo_work_free(rondo_work_t work);

/* Registered memory (Communicator::allocate): memory that every rank of this host maps, on which collectives are
 * direct. Give it back before the communicator, or leave it to rondo_destroy. */
RONDO_API rondo_result_t rondo_allocate(rondo_comm_t comm, size_t bytes, void** data);
RONDO_API rondo_result_t rondo_deallocate(rondo_comm_t comm, void* data);

/* Groups: *group is NULL where this rank is in none (colour < 0). */
RONDO_API rondo_result_t rondo_split(rondo_comm_t comm, int colour, int key, rondo_comm_t* group);
RONDO_API rondo_result_t rondo_new_group(rondo_comm_t comm, const int* ranks, size_t count, rondo_comm_t* group);

RONDO_API rondo_result_t rondo_abort(rondo_comm_t comm, const char* reason);
/* Says goodbye and frees the handle. */
RONDO_API rondo_result_t rondo_destroy(rondo_comm_t comm);

#ifdef __cplusplus
}
#endif

#endif /* RONDO_H_ */
