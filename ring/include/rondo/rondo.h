#ifndef RONDO_H_
#define RONDO_H_

/* Rondo's C API.
 *
 * Results. Every function returns a rondo_result_t unless it says otherwise. rondo_last_error() is the text of this
 * thread's last failure. No C++ exception leaves the library. RONDO_INVALID is returned before anything happens and
 * leaves the communicator usable; so does RONDO_NOT_FINITE, when the call is over. After any other failure of an
 * operation the communicator is failed: every later call returns the same failure, and only rondo_abort, rondo_destroy
 * and the functions that ask (rank, size, ...) remain.
 *
 * Threads. Any thread may call any function. Calls on one communicator are serialized in call order. A handle
 * may be freed while calls that have begun use it: the last of them frees it. None may begin with it afterwards.
 *
 * Collectives. All ranks of the communicator make the same calls in the same order. The ranks compare the calls:
 * different ones end in RONDO_MISMATCH, not in a hang or in wrong data. Messages (send, recv) are independent of this
 * order.
 *
 * Counts are elements of dtype unless a name ends in bytes. Buffers need no alignment. A call with 0 elements is valid,
 * and its buffers may be NULL.
 *
 * In place:
 *   all_reduce, reduce, scan, exscan,
 *   all_reduce_many                         output == input
 *   all_gather, gather                      input == output + rank * count elements
 *   all_gather_v, gather_v                  input == output + displacement of this rank's block
 *   reduce_scatter, scatter (and _v)        output == input + this rank's block, likewise
 *   all_to_all, all_to_all_v                never
 * Any other overlap of input and output is RONDO_INVALID.
 *
 * Blocking and asynchronous calls. Each call has two forms. rondo_run and rondo_X return when the result is there.
 * rondo_start and rondo_X_async return at once and set *work; the buffers must stay valid and unchanged until
 * rondo_wait or rondo_test says that the operation has ended. A background thread makes progress on operations that no
 * thread waits for. Pass each work to rondo_work_free. If the call fails, *work is NULL. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_API __attribute__((visibility("default")))

/* The version of this header. Before 1.0, another minor version is another interface. */
#define RONDO_VERSION "0.2.0"
#define RONDO_VERSION_MAJOR 0
#define RONDO_VERSION_MINOR 2
#define RONDO_VERSION_PATCH 0
/* For comparisons: 200 is 0.2.0, 10203 is 1.2.3. */
#define RONDO_VERSION_NUMBER (RONDO_VERSION_MAJOR * 10000 + RONDO_VERSION_MINOR * 100 + RONDO_VERSION_PATCH)

typedef struct rondo_comm* rondo_comm_t;
typedef struct rondo_work* rondo_work_t;
typedef struct rondo_id_server* rondo_id_server_t;

/* Enumerated types are plain integers: their size is the same for every compiler and binding, and a value outside the
 * list is an error to report, not undefined behavior. */
typedef int32_t rondo_result_t;
enum {
  RONDO_OK = 0,
  RONDO_INVALID = 1,       /* the caller's arguments; nothing was done */
  RONDO_MISMATCH = 2,      /* ranks made different calls; the text shows both */
  RONDO_TIMEOUT = 3,       /* a deadline passed; the ranks are those that were absent */
  RONDO_PEER_LOST = 4,     /* a process died or cannot be reached; the ranks name it */
  RONDO_ABORTED = 5,       /* a rank called rondo_abort; the ranks name it */
  RONDO_PROTOCOL = 6,      /* a peer sent what the protocol forbids */
  RONDO_NETWORK = 7,       /* connecting, listening or resolving failed */
  RONDO_BOOTSTRAP = 8,     /* the ranks did not find one another; the ranks are those missing */
  RONDO_SYSTEM = 9,        /* the operating system refused memory, descriptors, threads or the like */
  RONDO_UNSUPPORTED = 10,  /* valid, but not on this machine or in this build */
  RONDO_INTERNAL = 11,     /* a fault of the library */
  RONDO_CLOSED = 12,       /* used after its end */
  RONDO_PEER_LEFT = 13,    /* a process ended its communicator in good order */
  RONDO_INTERRUPTED = 14,  /* the program's function of rondo_set_interrupt ended a wait */
  RONDO_UNRESPONSIVE = 15, /* a process has not answered for RONDO_SUSPICION_MS; the ranks name it */
  RONDO_CORRUPT = 16,      /* data arrived damaged, or results differ between ranks (RONDO_CHECK) */
  RONDO_AUTH_FAILED = 17,  /* a peer does not know the job's secret */
  RONDO_EPOCH_STALE = 18,  /* rondo_shrink: the others go on without this process */
  RONDO_NOT_FINITE =
      19, /* a wire format met NaN, infinity or overflow; the ranks name where; the communicator goes on */
  RONDO_CANCELLED = 20,   /* rondo_work_cancel took it back; the communicator goes on */
  RONDO_TRUNCATED = 21,   /* a message was longer than its buffer (RONDO_TRUNCATE); the communicator goes on */
  RONDO_NO_QUORUM = 22,   /* rondo_shrink: too few can be reached, and the rest may go on themselves */
  RONDO_IN_PROGRESS = 100 /* rondo_wait: not done yet; no failure */
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
  RONDO_FLOAT16 = 8,  /* IEEE 754 binary16 */
  RONDO_BFLOAT16 = 9, /* the upper half of a float32 */
  RONDO_FLOAT32 = 10,
  RONDO_FLOAT64 = 11,
  RONDO_BOOL = 12,        /* one byte: 0 is false, anything else is true; results are 0 or 1 */
  RONDO_FLOAT8_E4M3 = 13, /* no infinity: overflow is NaN */
  RONDO_FLOAT8_E5M2 = 14
};

typedef int32_t rondo_op_t;
enum {
  RONDO_SUM = 0,
  RONDO_PRODUCT = 1,
  RONDO_MIN = 2,
  RONDO_MAX = 3,
  RONDO_AVG = 4,  /* sum / size; not for bool */
  RONDO_BAND = 5, /* bitwise: integers and bool */
  RONDO_BOR = 6,
  RONDO_BXOR = 7,
  RONDO_LAND = 8, /* logical: 0 or 1 */
  RONDO_LOR = 9,
  RONDO_LXOR = 10,
  RONDO_PREMULSUM = 11, /* sum of options->scalar of rank r * input of rank r; floats only */
  RONDO_USER = 255      /* options->user: the program's */
};

/* A reduction of the program's, which is associative: inout[i] = in[i] op inout[i] for count elements of element_bytes
 * each. commutative 0: the contributions are folded in the order of the ranks; else in any order, the same on all
 * ranks. in and inout do not overlap, and are aligned to 16 bytes or the largest power of two that divides
 * element_bytes, whichever is less. The function is called on the thread that moves the call, which may be one of the
 * library, with parts of the buffers, any number of times. It must not throw, call the library, or wait. */
typedef struct {
  void (*function)(const void* in, void* inout, size_t count, void* context); /* NULL: none */
  void* context;
  uint32_t element_bytes; /* 1 to 4096; the same on all ranks */
  int32_t commutative;    /* likewise */
} rondo_user_op_t;

#define RONDO_ANY_SOURCE (-1)
#define RONDO_ANY_TAG (-1)

/* The version of the library, as RONDO_VERSION is that of the header. */
RONDO_API const char* rondo_version(void);

/* The text of this thread's last failure: what happened, on which rank, and what to do. "" if there was none. Valid
 * until this thread's next call. */
RONDO_API const char* rondo_last_error(void);
/* The ranks that this thread's last failure blames: writes up to `capacity` of them to ranks, returns how many there
 * are.
 */
RONDO_API size_t rondo_last_error_ranks(int* ranks, size_t capacity);
/* The same ones as ranks of the job, and the process ids of those on this host, as they know them themselves
 * (containers differ); 0 for another host. None where no communicator has reported the failure. */
RONDO_API size_t rondo_last_error_world_ranks(int* ranks, size_t capacity);
RONDO_API size_t rondo_last_error_processes(int64_t* processes, size_t capacity);
/* "OK", "INVALID", ... */
RONDO_API const char* rondo_result_name(rondo_result_t result);

/* Log lines go to standard error, or to `function` if one is set: for the whole process, from any thread, one call at a
 * time. level: 1 warning, 2 info, 3 trace; RONDO_DEBUG says which levels there are. rank: of the process, -1 where it
 * is not known yet. text: without a line end, valid during the call. The function must not call the library. When
 * rondo_set_log has returned, the function set before is not called any more. NULL: standard error. */
typedef void (*rondo_log_function_t)(void* context, int level, int rank, const char* text);
RONDO_API rondo_result_t rondo_set_log(rondo_log_function_t function, void* context);

/* Lets a program end waits, for example when a signal came. `function` is called on each thread that has waited for
 * 100 ms for an operation or in rondo_join, and every 100 ms from then on, with no lock of the library held. If it
 * returns another value than 0, this call returns RONDO_INTERRUPTED, and the communicator fails: this rank's later
 * calls return that, the other ranks' RONDO_ABORTED. For the whole process. NULL: none. When this returns, no other
 * thread is in the function set before, unless it has been there for a second. */
typedef int (*rondo_interrupt_function_t)(void* context);
RONDO_API rondo_result_t rondo_set_interrupt(rondo_interrupt_function_t function, void* context);
/* The same for waits of the calling thread alone, beside that of the process. */
RONDO_API rondo_result_t rondo_set_thread_interrupt(rondo_interrupt_function_t function, void* context);

/* ---- Joining ---- */

/* Joins the job that the environment describes: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or what a launcher sets.
 * Returns when all ranks are connected. *comm is to be passed to rondo_destroy. The same as rondo_join without options.
 */
RONDO_API rondo_result_t rondo_init(rondo_comm_t* comm);

/* What a function of a store answers with, during its call. Copies the bytes; a second answer replaces the first. */
typedef struct rondo_reply* rondo_reply_t;
RONDO_API rondo_result_t rondo_reply_set(rondo_reply_t reply, const void* data, size_t bytes);

/* A store of the program's, in which the ranks find one another: a map of byte strings that all ranks see. All six
 * functions are needed. They are called inside rondo_join only, on its thread. context: the structure's. key: "rondo/"
 * and printable text, ended by a zero byte. timeout_ms: the time that is left, 1 or more.
 * Result: RONDO_OK; RONDO_TIMEOUT: timeout_ms has passed; anything else: the store is gone, and rondo_join ends with
 * RONDO_BOOTSTRAP. The reply of a failure, where there is one, is its text. */
typedef struct {
  size_t struct_bytes; /* sizeof(rondo_store_t); RONDO_STORE_INIT sets it */
  void* context;
  rondo_result_t (*put)(void* context, const char* key, const void* value, size_t bytes, int64_t timeout_ms,
                        rondo_reply_t failure);
  /* Waits until the key exists, and replies with its value. */
  rondo_result_t (*get)(void* context, const char* key, int64_t timeout_ms, rondo_reply_t value);
  /* Does not wait for the key. Without it there is no reply. */
  rondo_result_t (*try_get)(void* context, const char* key, int64_t timeout_ms, rondo_reply_t value);
  /* Adds to the decimal number under the key (0 if absent); *sum: the number afterwards. */
  rondo_result_t (*add)(void* context, const char* key, int64_t amount, int64_t timeout_ms, int64_t* sum,
                        rondo_reply_t failure);
  /* Stores `desired` if the value is `expected` (an absent key counts as ""), and replies with the value afterwards. */
  rondo_result_t (*compare_set)(void* context, const char* key, const void* expected, size_t expected_bytes,
                                const void* desired, size_t desired_bytes, int64_t timeout_ms, rondo_reply_t value);
  /* *removed: 1 if the key was there, else 0. */
  rondo_result_t (*remove)(void* context, const char* key, int64_t timeout_ms, int* removed, rondo_reply_t failure);
} rondo_store_t;
#define RONDO_STORE_INIT \
  { sizeof(rondo_store_t), NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* Options of rondo_join; NULL stands for RONDO_JOIN_OPTIONS_INIT. Everything is read during the call only. */
typedef struct {
  size_t struct_bytes; /* sizeof(rondo_join_options_t); RONDO_JOIN_OPTIONS_INIT sets it */
  int rank, world;     /* -1: the environment's */
  /* "tcp://host:port" (rank 0 listens there), "file:///path", "unix:///path", "unique:..." (rondo_id_server_create);
   * NULL: the environment's; of no meaning with a store. */
  const char* rendezvous;
  const char* job_id;          /* processes with different ones refuse each other; NULL: the environment's */
  const char* const* settings; /* setting_count texts "RONDO_X=value" of docs/environment.md, but for those of rank and
                                * rendezvous; they come before the environment's */
  size_t setting_count;
  const rondo_store_t* store; /* instead of a rendezvous; needs no MASTER_ADDR; NULL: none */
} rondo_join_options_t;
#define RONDO_JOIN_OPTIONS_INIT \
  { sizeof(rondo_join_options_t), -1, -1, NULL, NULL, NULL, 0, NULL }
/* Like rondo_init, with what the program says instead of the environment. *comm is NULL if it fails. */
RONDO_API rondo_result_t rondo_join(rondo_comm_t* comm, const rondo_join_options_t* options);

/* comms[0 .. world-1]: ranks as threads of this process; world: 1 .. 1024. Use each from a thread of its own. RONDO_*
 * are read. */
RONDO_API rondo_result_t rondo_init_inproc(rondo_comm_t* comms, int world);

/* A unique id: any process makes it, and hands it to all ranks as a string, which is their rendezvous (rondo_join). A
 * thread of this process serves it until all ranks are connected, or until the server is destroyed. *id is valid until
 * the server is destroyed. host: the address to listen on and to publish; NULL: one that other hosts reach. */
RONDO_API rondo_result_t rondo_id_server_create(rondo_id_server_t* server, const char* host, const char** id);
RONDO_API rondo_result_t rondo_id_server_destroy(rondo_id_server_t server);

/* Rank and size of this communicator. */
RONDO_API rondo_result_t rondo_rank(rondo_comm_t comm, int* rank);
RONDO_API rondo_result_t rondo_size(rondo_comm_t comm, int* size);
/* *authenticated: 1 if every rank has proved that it knows the job's secret; 0 with RONDO_INSECURE=1. Equal on all
 * ranks. */
RONDO_API rondo_result_t rondo_authenticated(rondo_comm_t comm, int* authenticated);

/* The process in the job, the same for all of its communicators. */
typedef struct {
  int rank, world;
  int local_rank, local_world; /* among the ranks of its node */
  int node, nodes;
} rondo_place_t;
RONDO_API rondo_result_t rondo_place(rondo_comm_t comm, rondo_place_t* place);
/* Where the ranks of this communicator live; equal on all of them. Each array has `size` entries, or is NULL. host[r]:
 * number of rank r's host. island[r]: ranks with the same number share memory; -1: rank r shares with none. cores[r]:
 * cores of rank r's host that the job may use there; 0: not known. */
RONDO_API rondo_result_t rondo_topology(rondo_comm_t comm, int* host, int* island, int* cores);

/* ---- Collectives ---- */

/* How elements of float32, bfloat16 and float16 travel between ranks: all_reduce, reduce_scatter, all_gather;
 * RONDO_SUM, RONDO_AVG. Sums are made in float32; all ranks end with the same bits. docs/compression.md has the error
 * of each. */
typedef int32_t rondo_wire_format_t;
enum {
  RONDO_WIRE_NONE = 0, /* as they are in memory */
  RONDO_WIRE_FLOAT16 = 1,
  RONDO_WIRE_BFLOAT16 = 2,
  RONDO_WIRE_FLOAT8_E4M3 = 3, /* this and those below: with a scale for each 128 elements */
  RONDO_WIRE_FLOAT8_E5M2 = 4,
  RONDO_WIRE_INT8 = 5,
  RONDO_WIRE_INT4 = 6,
  RONDO_WIRE_PACKED = 7 /* equal bits in fewer bytes: broadcast and all_gather of bfloat16 and float32 */
};
enum {
  RONDO_WIRE_STOCHASTIC = 1,       /* int8, int4: rounds at random by wire_seed, which each call should change */
  RONDO_WIRE_ALLOW_NOT_FINITE = 2, /* a result that is not finite is given as it is; else it is RONDO_NOT_FINITE */
};

/* Options of one call; NULL stands for RONDO_OPTIONS_INIT. A structure of an older header is shorter: the fields it
 * lacks have their defaults. One of a newer header is longer: it is RONDO_INVALID if it sets fields that the library
 * lacks. */
typedef struct {
  size_t struct_bytes;      /* sizeof(rondo_options_t); RONDO_OPTIONS_INIT sets it */
  int64_t timeout_ms;       /* of the operation; 0: RONDO_TIMEOUT_MS; negative: RONDO_INVALID */
  double scalar;            /* RONDO_PREMULSUM: this rank's factor */
  const char* algorithm;    /* NULL or "auto", or a value of RONDO_ALGORITHM such as "ring"; the same on all ranks */
  rondo_wire_format_t wire; /* the same on all ranks */
  int32_t wire_flags;       /* RONDO_WIRE_STOCHASTIC | ...; 0: none */
  uint64_t wire_seed;
  /* Error feedback: as many elements as the input, zero before the first call. It keeps what this rank's encoding has
   * lost, and is added to the input of the next call. NULL: none. */
  float* residual;
  /* 1: the buffers are memory of a GPU, and the call takes its place in `stream`, a cudaStream_t (NULL: the legacy
   * stream); it returns when it has been put there. 0: host memory */
  int64_t on_stream;
  void* stream;
  /* Why the call is made; the same on all ranks. Calls of one purpose never match those of another. 0: the program's
   * own; libraries that make calls out of others take numbers from 256 to 65,535; those below are Rondo's (call.h) */
  uint64_t purpose;
  uint64_t flags; /* RONDO_SYNCHRONOUS, RONDO_TRUNCATE, RONDO_RECOVERABLE; 0: none */
  /* RONDO_USER, in the calls that reduce but for lists. The call's dtype is not read: counts are elements of this. */
  rondo_user_op_t user;
} rondo_options_t;
enum {
  RONDO_SYNCHRONOUS = 1, /* a send: it is over when its receive has met it */
  RONDO_TRUNCATE = 2,    /* a receive: of a longer message its buffer gets the beginning, and it ends with
                          * RONDO_TRUNCATED; else with RONDO_MISMATCH */
  RONDO_RECOVERABLE = 4, /* an all_reduce by itself, in host memory, without a wire format: if it fails, its input
                          * is as it was, also in place, where it works in memory of the communicator. A rank's own
                          * choice */
};
#define RONDO_OPTIONS_INIT                                                                                  \
  {                                                                                                         \
    sizeof(rondo_options_t), 0, 1.0, NULL, RONDO_WIRE_NONE, 0, 0, NULL, 0, NULL, 0, 0, { NULL, NULL, 0, 0 } \
  }

typedef int32_t rondo_collective_t;
enum {
  RONDO_ALL_REDUCE = 0,
  RONDO_REDUCE_SCATTER = 1,
  RONDO_ALL_GATHER = 2,
  RONDO_BROADCAST = 3,
  RONDO_REDUCE = 4,
  RONDO_GATHER = 5,
  RONDO_SCATTER = 6,
  RONDO_ALL_TO_ALL = 7,
  RONDO_BARRIER = 8,
  RONDO_SCAN = 9,
  RONDO_EXSCAN = 10
};
/* *name: the algorithm that such a call would run, a value of RONDO_ALGORITHM; valid for ever. count, dtype, op: as in
 * the call. registered: not 0 if the buffers of all ranks are from rondo_allocate. */
RONDO_API rondo_result_t rondo_algorithm_for(rondo_comm_t comm, rondo_collective_t collective, uint64_t count,
                                             rondo_dtype_t dtype, rondo_op_t op, int registered, const char** name);

/* One collective, which rondo_run and rondo_start take. The calls by name (calls_c.h) fill one in, and say the shapes
 * of the buffers for each collective. Where a buffer has a block for each rank, block r is the r-th. */
typedef struct {
  size_t struct_bytes; /* sizeof(rondo_call_t); RONDO_CALL_INIT sets it */
  rondo_collective_t collective;
  rondo_dtype_t dtype;
  rondo_op_t op; /* of collectives that reduce */
  int root;      /* a rank; of collectives that have one */
  const void* input;
  void* output; /* RONDO_BROADCAST: the buffer; input is the same */
  /* Elements of the buffers; where one has blocks, of each block. uneven: of this rank's own block, by gather and
   * scatter alone. */
  uint64_t count;
  /* 1: the blocks differ in length, as those of rondo_all_gather_v and the like, and the counts say how long they are
   */
  int64_t uneven;
  /* A buffer with blocks has one entry a rank, in elements, read during the call only. Block r has counts[r] elements
   * and begins displacements[r] elements into the buffer; displacements NULL: blocks one after the other. */
  const uint64_t* input_counts;
  const uint64_t* output_counts;
  const uint64_t* input_displacements;
  const uint64_t* output_displacements;
  const rondo_options_t* options; /* NULL: RONDO_OPTIONS_INIT */
} rondo_call_t;
#define RONDO_CALL_INIT                                                                                             \
  {                                                                                                                 \
    sizeof(rondo_call_t), RONDO_ALL_REDUCE, RONDO_FLOAT32, RONDO_SUM, -1, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, \
        NULL                                                                                                        \
  }

/* One collective call. rondo_run returns when the result is in the output. rondo_start returns at once; the buffers
 * belong to the call until *work has ended. The structures of a call are read before either returns.
 * RONDO_INVALID: a NULL buffer that would be used, a root that is no rank, an unknown dtype or op, an operation that
 * the dtype lacks. */
RONDO_API rondo_result_t rondo_run(rondo_comm_t comm, const rondo_call_t* call);
RONDO_API rondo_result_t rondo_start(rondo_comm_t comm, const rondo_call_t* call, rondo_work_t* work);

/* ---- Sparse all_reduce ---- */

/* *output: the sum over all ranks of the elements that each selects of u, its input plus its residual; the same bits on
 * all ranks. input, output: count float32 (below 2^32), equal or apart. Blocking.
 * RONDO_INVALID: spars out of range, a NULL or overlapping buffer. RONDO_NOT_FINITE: an element of some rank's u is NaN
 * or infinite; all buffers are unchanged, and the communicator goes on; so it does after RONDO_MISMATCH, when ranks
 * have other counts. */
typedef int32_t rondo_select_t;
enum {
  RONDO_TOP_K = 0,    /* the ceil(spars * count) largest magnitudes, exactly; of equal ones the lowest index */
  RONDO_THRESHOLD = 1 /* magnitudes of spars and above */
};
typedef struct {
  size_t struct_bytes; /* sizeof(rondo_sparse_options_t); RONDO_SPARSE_OPTIONS_INIT sets it */
  int64_t timeout_ms;
  double spars;    /* RONDO_THRESHOLD: 0 and above; else above 0, at most 1 */
  float* residual; /* count elements, zero before the first call: what is not sent is kept there; NULL: it is lost */
  rondo_select_t select;
  int32_t reserved; /* 0 */
  /* Lengths of tensors that lie in the buffer one after the other, count together: the selection is made in each. NULL:
   * the buffer is one tensor. */
  const uint64_t* tensors;
  size_t tensor_count;
} rondo_sparse_options_t;
#define RONDO_SPARSE_OPTIONS_INIT \
  { sizeof(rondo_sparse_options_t), 0, 0.05, NULL, RONDO_TOP_K, 0, NULL, 0 }
typedef int32_t rondo_sparse_route_t;
enum {
  RONDO_SPARSE_GATHERED = 0, /* every rank got every selection */
  RONDO_SPARSE_MERGED = 1,   /* ranges of elements were added up by one rank each */
  RONDO_SPARSE_DENSE = 2     /* the selections were too many, and all elements were reduced */
};
typedef struct {
  uint64_t selected;   /* elements that this rank has sent */
  uint64_t total;      /* of all ranks */
  uint64_t bytes_sent; /* what this rank has contributed, counted for each rank that got it */
  rondo_sparse_route_t route;
  int32_t reserved;
} rondo_sparse_report_t;
/* options, report: may be NULL. */
RONDO_API rondo_result_t rondo_sparse_all_reduce(rondo_comm_t comm, const float* input, float* output, uint64_t count,
                                                 const rondo_sparse_options_t* options, rondo_sparse_report_t* report);

/* ---- Training round an optimizer ---- */

/* rondo::DistOpt of <rondo/dist_opt.h>, which says what each exchange does: a step is rondo_dist_opt_reduce, the update
 * of all parameters by the caller, rondo_dist_opt_average. Collective, in the same order on all ranks; one thread at a
 * time, and not in a batch. */
typedef struct rondo_dist_opt* rondo_dist_opt_t;
typedef int32_t rondo_exchange_t;
enum {
  RONDO_EXCHANGE_FLOAT32 = 0,
  RONDO_EXCHANGE_FLOAT16 = 1,
  RONDO_EXCHANGE_BFLOAT16 = 2,
  RONDO_EXCHANGE_INT8 = 3,
  RONDO_EXCHANGE_TOP_K = 4,
  RONDO_EXCHANGE_THRESHOLD = 5,
  RONDO_EXCHANGE_PARTIAL_UPDATE = 6,
  RONDO_EXCHANGE_LOCAL_SGD = 7
};
typedef struct {
  const char* name; /* copied */
  float* parameter; /* count elements, which stay where they are */
  uint64_t count;
} rondo_parameter_t;
/* The fields of rondo::DistOptOptions; rondo_dist_opt_defaults sets all of them. */
typedef struct {
  size_t struct_bytes;
  double spars; /* NaN: the exchange's own */
  double clip;
  double outer_rate;
  double outer_momentum;
  uint64_t bucket_bytes;
  uint64_t partition_bytes;
  uint64_t every;
  rondo_exchange_t exchange;
  int32_t residual;
  int32_t nesterov;
  rondo_wire_format_t outer_wire;
  uint64_t outer_delay;
  uint64_t outer_fragments;
} rondo_dist_opt_options_t;
/* What a parameter adds to a checkpoint: residuals, world * count elements, those of all ranks one after the other;
 * outer and momentum, count elements, of RONDO_EXCHANGE_LOCAL_SGD, else NULL. */
typedef struct {
  float* residuals;
  float* outer;
  float* momentum;
} rondo_dist_opt_tensor_t;
RONDO_API rondo_result_t rondo_dist_opt_defaults(rondo_dist_opt_options_t* options);
/* Broadcasts the parameters of rank 0. The communicator lives as long, or until rondo_dist_opt_regroup. */
RONDO_API rondo_result_t rondo_dist_opt_create(rondo_dist_opt_t* optimizer, rondo_comm_t comm,
                                               const rondo_parameter_t* parameters, size_t parameter_count,
                                               const rondo_dist_opt_options_t* options);
/* Where a parameter's gradient lies from here on; NULL: it has none, which only RONDO_EXCHANGE_PARTIAL_UPDATE and
 * RONDO_EXCHANGE_LOCAL_SGD take. */
RONDO_API rondo_result_t rondo_dist_opt_place(rondo_dist_opt_t optimizer, const char* name, float* gradient);
/* The backward pass has written the gradient: its exchange may begin. exchange, spars, here and below: of this step. */
RONDO_API rondo_result_t rondo_dist_opt_ready(rondo_dist_opt_t optimizer, const char* name, rondo_exchange_t exchange);
RONDO_API rondo_result_t rondo_dist_opt_reduce(rondo_dist_opt_t optimizer, rondo_exchange_t exchange, double spars);
RONDO_API rondo_result_t rondo_dist_opt_average(rondo_dist_opt_t optimizer, rondo_exchange_t exchange);
RONDO_API rondo_result_t rondo_dist_opt_wait(rondo_dist_opt_t optimizer);
/* Goes on with what rondo_shrink or rondo_grow has made; collective, beside rondo_dist_opt_create of newcomers. */
RONDO_API rondo_result_t rondo_dist_opt_regroup(rondo_dist_opt_t optimizer, rondo_comm_t next);
/* Steps, and bytes that this rank has sent. */
RONDO_API rondo_result_t rondo_dist_opt_counts(rondo_dist_opt_t optimizer, uint64_t* steps, uint64_t* bytes_sent);
/* tensors: one for each parameter, in the order of rondo_dist_opt_create. Save fills them, on all ranks alike; load,
 * which is not collective, reads those that a world of `world` ranks saved after `steps` steps. */
RONDO_API rondo_result_t rondo_dist_opt_save(rondo_dist_opt_t optimizer, const rondo_dist_opt_tensor_t* tensors);
RONDO_API rondo_result_t rondo_dist_opt_load(rondo_dist_opt_t optimizer, const rondo_dist_opt_tensor_t* tensors,
                                             int world, uint64_t steps);
/* Waits for exchanges that rondo_dist_opt_ready has begun; in an end function they go on, in memory that they keep. */
RONDO_API rondo_result_t rondo_dist_opt_free(rondo_dist_opt_t optimizer);

/* ---- Many calls at once ---- */

/* all_reduce of every tensor of a list: the gradients of a step. All ranks give the same counts and dtypes in the same
 * order. Small tensors share operations of at most RONDO_BUCKET_BYTES; large ones run in place of their own. No output
 * may overlap another tensor. The list is read during the call only. */
typedef struct {
  const void* input;
  void* output;
  uint64_t count;
  rondo_dtype_t dtype;
} rondo_tensor_t;
RONDO_API rondo_result_t rondo_all_reduce_many(rondo_comm_t comm, const rondo_tensor_t* tensors, size_t tensor_count,
                                               rondo_op_t op, const rondo_options_t* options);
RONDO_API rondo_result_t rondo_all_reduce_many_async(rondo_comm_t comm, const rondo_tensor_t* tensors,
                                                     size_t tensor_count, rondo_op_t op, const rondo_options_t* options,
                                                     rondo_work_t* work);

/* Batches. Calls of this thread on this communicator between begin and end are checked and kept, and start together at
 * the end; consecutive all_reduces become as few operations as in rondo_all_reduce_many. Nothing is read or written
 * before the end, and buffers stay valid until the whole batch is done. An _async call gives the batch's work (send and
 * recv: their own), to be used after the end. The message of a blocking receive is empty: peer and tag -1, 0 bytes. At
 * most 65,536 calls. RONDO_INVALID: a second begin, an end without begin or by another thread.
 * rondo_batch_end waits until all of it is done. Both ends close the batch, whatever they return. */
RONDO_API rondo_result_t rondo_batch_begin(rondo_comm_t comm);
RONDO_API rondo_result_t rondo_batch_end(rondo_comm_t comm);
RONDO_API rondo_result_t rondo_batch_end_async(rondo_comm_t comm, rondo_work_t* work);
/* Drops the calls; works of them fail with RONDO_INVALID. Without a batch it does nothing. */
RONDO_API rondo_result_t rondo_batch_abandon(rondo_comm_t comm);

/* ---- Point to point ---- */

/* What was received, sent or found: the peer's rank, the tag and the length. */
typedef struct {
  int peer;
  int tag;
  uint64_t bytes;
  uint64_t matched; /* found by a matched probe: what rondo_mrecv names; else 0 */
} rondo_message_t;

/* tag: 0 .. 2^31-1. Messages of one pair and tag arrive in order. peer RONDO_ANY_SOURCE, tag RONDO_ANY_TAG: any. A
 * message that is longer than the receiver's buffer is RONDO_MISMATCH on both sides, or, with RONDO_TRUNCATE,
 * RONDO_TRUNCATED of the receive alone; a shorter one reports its length. Sends that MPI calls buffered are
 * rondo_send_async of a copy; those that it calls ready are rondo_send.
 * message may be NULL; of an _async call, rondo_work_message gives it. */
RONDO_API rondo_result_t rondo_send(rondo_comm_t comm, const void* data, uint64_t count, rondo_dtype_t dtype, int peer,
                                    int tag, const rondo_options_t* options);
RONDO_API rondo_result_t rondo_send_async(rondo_comm_t comm, const void* data, uint64_t count, rondo_dtype_t dtype,
                                          int peer, int tag, const rondo_options_t* options, rondo_work_t* work);
RONDO_API rondo_result_t rondo_recv(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, int peer,
                                    int tag, const rondo_options_t* options, rondo_message_t* message);
RONDO_API rondo_result_t rondo_recv_async(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype, int peer,
                                          int tag, const rondo_options_t* options, rondo_work_t* work);
/* Both at once, without deadlock; the two buffers must not overlap. message: of the receive. */
RONDO_API rondo_result_t rondo_sendrecv(rondo_comm_t comm, const void* send_data, uint64_t send_count, int to,
                                        void* recv_data, uint64_t recv_count, int from, rondo_dtype_t dtype, int tag,
                                        const rondo_options_t* options, rondo_message_t* message);
/* One work of both; its rondo_work_message is of the receive. */
RONDO_API rondo_result_t rondo_sendrecv_async(rondo_comm_t comm, const void* send_data, uint64_t send_count, int to,
                                              void* recv_data, uint64_t recv_count, int from, rondo_dtype_t dtype,
                                              int tag, const rondo_options_t* options, rondo_work_t* work);

/* Waits until a message is there that rondo_recv with this peer and tag would take, and says which. It stays. No other
 * rank knows of a probe: its timeout leaves the communicator usable, and rondo_work_cancel takes it back. */
RONDO_API rondo_result_t rondo_probe(rondo_comm_t comm, int peer, int tag, const rondo_options_t* options,
                                     rondo_message_t* message);
RONDO_API rondo_result_t rondo_probe_async(rondo_comm_t comm, int peer, int tag, const rondo_options_t* options,
                                           rondo_work_t* work);
/* At once; *found: 0 if there is none yet. */
RONDO_API rondo_result_t rondo_iprobe(rondo_comm_t comm, int peer, int tag, int* found, rondo_message_t* message);
/* The same for a message that only rondo_mrecv of message->matched gets, once, so that threads can share comm. */
RONDO_API rondo_result_t rondo_mprobe(rondo_comm_t comm, int peer, int tag, const rondo_options_t* options,
                                      rondo_message_t* message);
RONDO_API rondo_result_t rondo_mprobe_async(rondo_comm_t comm, int peer, int tag, const rondo_options_t* options,
                                            rondo_work_t* work);
RONDO_API rondo_result_t rondo_improbe(rondo_comm_t comm, int peer, int tag, int* found, rondo_message_t* message);
RONDO_API rondo_result_t rondo_mrecv(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype,
                                     uint64_t matched, const rondo_options_t* options, rondo_message_t* message);
RONDO_API rondo_result_t rondo_mrecv_async(rondo_comm_t comm, void* data, uint64_t count, rondo_dtype_t dtype,
                                           uint64_t matched, const rondo_options_t* options, rondo_work_t* work);

/* ---- Work ---- */

/* Waits for the operation and makes progress on it meanwhile. timeout_ms < 0: until it ends. RONDO_IN_PROGRESS: the
 * wait ran out; the operation goes on. Otherwise the operation's result. */
RONDO_API rondo_result_t rondo_wait(rondo_work_t work, int64_t timeout_ms);
/* Waits until all works have ended, and returns the first failure in the list, or RONDO_IN_PROGRESS: the wait ran out.
 * NULL in the list, here and below: no work. */
RONDO_API rondo_result_t rondo_wait_all(const rondo_work_t* works, size_t count, int64_t timeout_ms);
/* Waits until one has ended, well or not: *index is its place, and rondo_wait of it gives its result.
 * RONDO_IN_PROGRESS: the wait ran out. *index == count: there is no work. */
RONDO_API rondo_result_t rondo_wait_any(const rondo_work_t* works, size_t count, int64_t timeout_ms, size_t* index);
/* *done: 1 once the operation has succeeded or failed. From then on the library does not touch its buffers. */
RONDO_API rondo_result_t rondo_test(rondo_work_t work, int* done);
/* Takes back a receive that no message has met, or a probe, so that it ends with RONDO_CANCELLED: *cancelled is 1.
 * Anything else goes on, or has ended: 0. */
RONDO_API rondo_result_t rondo_work_cancel(rondo_work_t work, int* cancelled);
/* The message of a send, recv or probe that has succeeded, else RONDO_INVALID. */
RONDO_API rondo_result_t rondo_work_message(rondo_work_t work, rondo_message_t* message);
/* `function` is called once when the operation has succeeded or failed; if it has already, it is called soon. result:
 * the operation's; inside the function rondo_last_error() and rondo_last_error_ranks() are the failure's. Each call of
 * this adds a function; they are called in this order, on a thread of the library, with no lock held, also after
 * rondo_work_free. The function may start calls (_async). It must not wait: a blocking call, rondo_wait, rondo_close
 * and rondo_destroy return RONDO_INVALID there; rondo_wait of an operation that has ended is allowed. Other operations
 * that no thread waits for stand still while it runs. rondo_destroy returns when all functions of the communicator's
 * operations have been called, unless other communicators of the same rondo_join remain. */
typedef void (*rondo_end_function_t)(void* context, rondo_result_t result);
RONDO_API rondo_result_t rondo_work_on_end(rondo_work_t work, rondo_end_function_t function, void* context);
/* Frees the handle. An operation that has not ended goes on, and still needs its buffers. NULL: nothing. */
RONDO_API rondo_result_t rondo_work_free(rondo_work_t work);

/* ---- GPU memory (docs/gpu.md): calls with options->on_stream ---- */

/* Collective: opens the library for GPUs on all ranks. RONDO_UNSUPPORTED on all of them: some rank can use no GPU;
 * calls on host memory go on. Implied by the first call on a stream. */
RONDO_API rondo_result_t rondo_attach_device(rondo_comm_t comm);
/* Collective: memory of this rank's device, zeroed, which all ranks map where their devices share memory; calls on
 * streams work on it without copies. rondo_deallocate() it on all ranks, when no call on a stream is under way;
 * rondo_close gives back what is left. RONDO_SYSTEM on all ranks where one has no memory. data NULL: nothing. */
RONDO_API rondo_result_t rondo_allocate_device(rondo_comm_t comm, size_t bytes, void** data);
/* What the program puts into `stream`, a cudaStream_t, from now on runs after the operation. RONDO_INVALID: it is of a
 * call without options->on_stream. */
RONDO_API rondo_result_t rondo_work_wait_on(rondo_work_t work, void* stream);

/* ---- Registered memory ---- */

/* Memory that every rank of this host maps; collectives whose buffers lie in it on all ranks need no copies. Zeroed,
 * aligned to a page; allocate once and keep it. RONDO_SYSTEM: no memory or descriptors; the communicator goes on. data
 * NULL: nothing. What is not given back before rondo_destroy is freed by it. */
RONDO_API rondo_result_t rondo_allocate(rondo_comm_t comm, size_t bytes, void** data);
RONDO_API rondo_result_t rondo_deallocate(rondo_comm_t comm, void* data);

/* ---- Sub-communicators ---- */

/* Collective. Ranks with the same color form a communicator, ordered by (key, rank). color < 0: none, *sub is NULL. */
RONDO_API rondo_result_t rondo_split(rondo_comm_t comm, int color, int key, rondo_comm_t* sub);
/* Collective. The ranks of each host, ordered by (key, rank). */
RONDO_API rondo_result_t rondo_split_by_host(rondo_comm_t comm, int key, rondo_comm_t* sub);
/* Called by the members only, by all of them in the same order. ranks: of this communicator, without duplicates; they
 * become 0, 1, ... in the order given. */
RONDO_API rondo_result_t rondo_new_group(rondo_comm_t comm, const int* ranks, size_t count, rondo_comm_t* sub);

/* The same ranks once more: calls, messages and failures of the one are none of the other. Called by all of them, in
 * the same order. */
RONDO_API rondo_result_t rondo_dup(rondo_comm_t comm, rondo_comm_t* copy);

/* ---- After a failure ---- */

/* The ranks that live go on as *next, renumbered in their order; comm is closed, and rondo_destroy() frees its handle.
 * Memory of rondo_allocate() is of both. Called by all that live, once a call has failed; one that lives and has not
 * called within timeout_ms (0: RONDO_START_TIMEOUT_MS) is left out. RONDO_NO_QUORUM: others may go on, and this rank
 * cannot. RONDO_EPOCH_STALE: the others go on without it. RONDO_TIMEOUT. docs/recovery.md */
RONDO_API rondo_result_t rondo_shrink(rondo_comm_t comm, int64_t timeout_ms, rondo_comm_t* next);
/* Takes in processes that wait at RONDO_JOIN, as the last ranks of *next; comm is closed. Called by all ranks with the
 * same number. RONDO_TIMEOUT on all ranks where fewer have come within timeout_ms (0: RONDO_START_TIMEOUT_MS): comm
 * goes on. Where newcomers die in their start, the ranks go on as *next without them. Else as rondo_shrink(). */
RONDO_API rondo_result_t rondo_grow(rondo_comm_t comm, int newcomers, int64_t timeout_ms, rondo_comm_t* next);
/* Collective: how many processes wait at RONDO_JOIN, the same on all ranks. */
RONDO_API rondo_result_t rondo_newcomers(rondo_comm_t comm, int* newcomers);
/* How often it has shrunk or grown. */
RONDO_API rondo_result_t rondo_epoch(rondo_comm_t comm, uint64_t* epoch);
/* Collective: all ranks have come to this step (0 or more, and more than the one before), with the same digest of what
 * they hold. Where it fails, other ranks may have it: rondo_committed() after rondo_shrink() is the same on all ranks.
 * Ranks that differ: RONDO_MISMATCH (step) or RONDO_CORRUPT (digest), which fails the communicator. */
RONDO_API rondo_result_t rondo_commit(rondo_comm_t comm, int64_t step, uint64_t digest);
/* The last step that was committed; -1: none. */
RONDO_API rondo_result_t rondo_committed(rondo_comm_t comm, int64_t* step);

/* ---- What happened ---- */

/* These functions serve this rank and all communicators of its rondo_join; not collective. docs/traces.md */
/* Records operations, steps, waits and transfers in folder/rank-R.rondo-trace from now on; R is the rank of the
 * process. A file that is there is replaced; a trace under way ends. RONDO_SYSTEM: the file cannot be made. */
RONDO_API rondo_result_t rondo_trace_start(rondo_comm_t comm, const char* folder);
/* Ends the trace; the file stays. Without one: nothing. */
RONDO_API rondo_result_t rondo_trace_stop(rondo_comm_t comm);
/* Counters and histograms in Prometheus' text format, since the first call of this, or since rondo_join with
 * RONDO_METRICS. Copies at most `room` bytes with the final 0 to text, which may be NULL if room is 0; *length: of the
 * whole text without the 0. */
RONDO_API rondo_result_t rondo_metrics(rondo_comm_t comm, char* text, size_t room, size_t* length);

/* ---- The end ---- */

/* The communicator's failure: its code, or RONDO_OK while there is none. rondo_last_error() and
 * rondo_last_error_ranks() are then its text and ranks. After rondo_close: RONDO_CLOSED. */
RONDO_API rondo_result_t rondo_error(rondo_comm_t comm);
/* Fails this communicator on all ranks: pending and later calls return RONDO_ABORTED with the reason. NULL: none given.
 */
RONDO_API rondo_result_t rondo_abort(rondo_comm_t comm, const char* reason);
/* The same for a signal handler: async-signal-safe, since it is one atomic store and a write to an eventfd; a thread of
 * the library tells the other ranks. Not while another thread closes or destroys the communicator. NULL: nothing. */
RONDO_API void rondo_abort_from_signal(rondo_comm_t comm);
/* Tells the others that this rank leaves, and waits until they have done so, at most RONDO_DESTROY_TIMEOUT_MS. Pending
 * operations end with RONDO_CLOSED, and so do later calls. The handle stays, and so does memory of rondo_allocate,
 * which no other rank touches any more. A second call does nothing. */
RONDO_API rondo_result_t rondo_close(rondo_comm_t comm);
/* rondo_close, and frees the handle and the memory of rondo_allocate. Works stay valid until rondo_work_free. The
 * handle is freed whatever the result is, but for RONDO_INVALID: it is NULL, or an end function made the call. */
RONDO_API rondo_result_t rondo_destroy(rondo_comm_t comm);

#ifdef __cplusplus
}
#endif

#include <rondo/calls_c.h>

#endif /* RONDO_H_ */
