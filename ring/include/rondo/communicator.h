#pragma once

#if __cplusplus < 202002L
#error "Rondo's C++ API needs C++20: compile with -std=c++20; the C API, <rondo/rondo.h>, does with any"
#else

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/call.h>
#include <rondo/calls.h>
#include <rondo/collective.h>
#include <rondo/config.h>
#include <rondo/dtype.h>
#include <rondo/error.h>
#include <rondo/export.h>
#include <rondo/op.h>
#include <rondo/topology.h>
#include <rondo/work.h>

namespace rondo {

class Store;

// The version of the library that is loaded; RONDO_VERSION of <rondo/rondo.h> is that of the headers.
RONDO_EXPORT const char* version();

// Where Communicator::allocate() takes memory from.
enum class Memory : uint8_t { kHost = 0, kDevice = 1 };

// How a process joins a job. Fields left at -1 or empty are taken from the environment, in this order: RONDO_*; RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them, or you by hand; the
// variables of Open MPI, MPICH (PMI) and Slurm (docs/bootstrap.md).
struct JoinOptions {
  int rank = -1;
  int world = -1;
  // "tcp://host:port" (rank 0 listens there), "file:///path" (a shared file), "unix:///path", "unique:..." (a string
  // made by UniqueIdServer); empty: from the environment.
  std::string rendezvous;
  std::string job_id;  // processes with different ones refuse each other; empty: from the environment, else "default"
  // Where processes without a rank ask for one, and grow() takes them in: addresses, comma-separated, "tcp://host:port"
  // or "unix:///path"; empty: RONDO_JOIN. A process with such an address that neither this nor a launcher gives a rank
  // is a newcomer: join() waits until the ranks of a running job take it in.
  std::string newcomers = {};
  // Instead of a rendezvous: a store of the program's. Used inside join() only, on its thread.
  std::shared_ptr<Store> store;
  Config config = Config::from_environment();
};

// A group of ranks that work together.
//
// Order. All ranks of the group make the same collective calls in the same order. The ranks compare the calls:
// different ones end in kMismatch, not in a hang or in wrong data. send and recv are independent of this order.
//
// Threads. Any thread may call. Calls on one communicator are serialized in call order.
//
// Buffers. `count` is elements of `dtype`, of 0 elements the buffers may be null. No alignment is needed. In place:
//   all_reduce, reduce, scan, exscan,
//   all_reduce_many                         output == input
//   all_gather, gather                      input == output + rank * count elements
//   all_gather_v, gather_v                  input == output + displacement of this rank's block
//   reduce_scatter, scatter (and _v)        output == input + this rank's block, likewise
//   all_to_all, all_to_all_v                never
// Any other overlap of input and output is kInvalid.
//
// Two forms. A call returns when its result is there. The form with _async returns at once with a Work; its buffers
// must stay valid and unchanged until the work is done. A background thread makes progress on operations that no thread
// waits for.
//
// Errors. Calls and Work::wait() throw Exception. kInvalid is thrown before anything happens and leaves the
// communicator usable: a null buffer that would be used, a root that is no rank, an operation that the dtype lacks
// (docs/numerics.md), a negative timeout. kNotFinite is thrown when a call with a wire format is over, and leaves it
// usable, too. After any other failure of an operation the communicator is failed: every
// later call throws the same error (ranks that died since are added), and only abort(), destroy() and the functions
// that ask (rank(), ...) remain.
class RONDO_EXPORT Communicator : public NamedCalls<Communicator> {
 public:
  // Joins; returns when all ranks are connected. Throws kInvalid, kBootstrap (error().ranks are those missing),
  // kNetwork, kTimeout, kSystem (descriptors, memory, threads). A faster rank may have aborted, left or failed the
  // group by then: the first call throws that.
  static Communicator join(const JoinOptions& options = {});
  // `world` ranks (1 .. 1024, else kInvalid) as threads of this process; [r] is rank r's, for a thread of its own. The
  // default configuration does not read RONDO_*: pass Config::from_environment() for that.
  static std::vector<Communicator> inproc(int world, const Config& config = {});

  Communicator();  // empty
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  ~Communicator();  // destroy(), without throwing

  // False: empty. On an empty one only valid(), destroy() and batch_abandon() are allowed; the rest throws kClosed.
  bool valid() const;
  int rank() const;
  int size() const;
  // Every rank has proved that it knows the job's secret; false with RONDO_INSECURE=1, where every process that can
  // connect may be a rank. The same on all ranks.
  bool authenticated() const;
  // The process in the job: the same for all of its communicators. References hold as long as this object.
  const Place& place() const;
  const Topology& topology() const;
  const Config& config() const;
  // The algorithm that such a call runs (kAuto is resolved). registered: the buffers of all ranks are from allocate().
  Algorithm algorithm_for(Collective collective, uint64_t count, DType dtype, Op op = Op::kSum,
                          bool registered = false) const;

  // --- What happened (docs/traces.md). Of this rank and all communicators of its join(). Not collective; any thread.
  // From now on records operations, steps, waits and transfers in folder/rank-R.rondo-trace, R the rank of the process;
  // a trace that is there is replaced, one under way ends. The folder is made, its parents are not. Throws kSystem.
  void start_trace(const std::string& folder);
  // Ends it; the file stays. Without a trace it does nothing.
  void stop_trace();
  // Counters and histograms since the first call of this, or since join() with RONDO_METRICS, in Prometheus' text
  // format. Counting begins with the first call: it costs two clock reads an operation, so it is off before.
  std::string metrics();

  // --- Calls. By name, on pointers and on ranges: calls.h. run() returns when the result is there, start() at once.
  void run(const Call& call);
  Work start(const Call& call);
  // A message: what it has moved.
  Message run(const MessageCall& call);
  Work start(const MessageCall& call);
  // What a probe finds at once, or nullopt. kPeerLeft: the peer is gone, and no message of it will come.
  std::optional<Message> look(const MessageCall& probe);
  // Both at once, without deadlock: what the receive has moved. Their buffers must not overlap. The send's options hold
  // for both, the receive's are not read. kInvalid where the first is no send or the second no receive.
  Message run(const MessageCall& send, const MessageCall& receive);
  // One Work of both: message() is the receive's. In a batch it is the Work of the receive.
  Work start(const MessageCall& send, const MessageCall& receive);

  // --- Many calls at once
  // all_reduce of every tensor of a list: the gradients of a step. All ranks give the same counts and dtypes in the
  // same order; lists that differ end in kMismatch before anything is written. Small tensors are copied together and
  // share operations of at most Config::bucket_bytes; large ones run on their own buffers. Each result has the bits
  // that its bucket has as one all_reduce, the same on all ranks. No output may overlap another tensor. kPremulSum: one
  // factor for the list. The list is read during the call only.
  void all_reduce_many(std::span<const TensorRef> tensors, Op op = Op::kSum, const CallOptions& options = {});
  Work all_reduce_many_async(std::span<const TensorRef> tensors, Op op = Op::kSum, const CallOptions& options = {});

  // Batches. Calls of this thread on this communicator between batch_begin() and batch_end() - collectives, lists,
  // send, recv - are checked and kept, and start together at the end: collectives in their order, consecutive
  // all_reduces as all_reduce_many() does them (kPremulSum: each by itself), sends and receives beside them in any
  // order. All ranks must batch consecutive all_reduces alike. Nothing is read or written before the end; buffers stay
  // valid until the whole batch is done. BatchScope below abandons a batch that an exception leaves.
  //
  // In a batch, the _async forms return the Work of the whole batch (send_async, recv_async: their own), and recv() and
  // sendrecv() an empty Message. These Works are for this thread until the end; waiting for them before is kInvalid.
  // Calls of other threads are not collected and run at once. A call that throws is not collected; the rest is.
  // All calls of a batch have a stream, or none has (kInvalid). Calls on streams are in their streams when batch_end()
  // returns: its sends, its collectives, its receives; the all_reduces that run together are consecutive ones of one
  // stream and operation.
  // kInvalid: a second batch_begin() by any thread, an end without a begin or by another thread, more than 65,536
  // calls, and calls that are made of others: split(), new_group(), attach_device(), device memory,
  // sparse_all_reduce(), DistOpt.
  void batch_begin();
  // Starts the calls, waits until all of them are done, and throws the first failure. kInvalid (overlapping
  // all_reduces, an algorithm that does not exist for a call): nothing was started. The batch is closed, whatever it
  // throws.
  void batch_end();
  Work batch_end_async();
  // Drops the calls; Works of them fail with kInvalid. Without a batch it does nothing. Any thread.
  void batch_abandon();

  // --- Registered memory
  // Memory that every rank of this host maps; where ranks share none, plain memory, which is as good for calls.
  // Collectives whose buffers lie in it on all ranks work on it without copies, the fastest way inside a host:
  // all_reduce above 8 KiB, the others by size (docs/plans.md), from 256 KiB on always; not uneven (v) calls and
  // kPremulSum. CallOptions::algorithm = kRegistered insists: kInvalid on all ranks where some buffer is not
  // registered.
  //
  // Zeroed, aligned to a page. Allocating costs system calls and page faults: allocate once and keep it. Registered for
  // all communicators of the same join(); plain memory for others. deallocate() on this communicator gives it back
  // (null is fine; also after destroy()), or the end of this object. Other ranks write to it during a call, and not
  // after the call has succeeded or failed. One exception: a rank whose process is stopped (SIGSTOP) in the middle of a
  // slice is waited for one second; if it goes on later, it still writes that slice. Throws kInvalid for 0 bytes and
  // for memory that this communicator has not allocated, kSystem when memory, descriptors or mappings run out (16,384
  // pieces a process); the communicator goes on. Not collective. Any thread.
  void* allocate(size_t bytes);
  void deallocate(void* data);

  // --- GPU memory (docs/gpu.md). A call with CallOptions::stream works on memory of that stream's device, in the order
  // of the stream: it returns when it has been put there, and what comes after it in the stream finds the result. Any
  // failure ends the stream's wait, and the communicator; the next call throws it. recv() and sendrecv() return when
  // the message has come.
  //
  // Collective. Opens the library for GPUs; all ranks do, or none, and then all throw kUnsupported, and calls on host
  // memory go on. Implied by the first call with a stream. A second call does nothing.
  void attach_device();
  // kHost: as allocate(bytes). kDevice: collective; memory of this rank's device, zeroed. Where the ranks' devices
  // share memory, every rank maps it when this returns, and calls on streams work on it without copies; sizes may
  // differ. For this communicator only: others take it as plain device memory. kSystem on all ranks where one has no
  // memory; kUnsupported as attach_device(). deallocate() it on all ranks, when no call on a stream is under way (it
  // waits for them, up to Config::destroy_timeout_ms, else kInvalid); destroy() gives back what is left. At most 4,095
  // pieces in the life of a communicator.
  void* allocate(size_t bytes, Memory memory);

  // --- Sub-communicators. If a member cannot make it (kSystem: no descriptors), all members throw that error, which
  // names the rank; this communicator goes on. What a faster member does to the new one is thrown by its own calls.
  // Collective. Ranks with the same color form a communicator, ordered by (key, rank). color < 0: none, an empty
  // Communicator.
  Communicator split(int color, int key = 0);
  // Collective. The ranks of each host (topology().host), ordered by (key, rank).
  Communicator split_by_host(int key = 0);
  // Called by the members only, by all of them in the same order. ranks: of this communicator, without duplicates; they
  // become 0, 1, ... in the order given. kInvalid: this rank is not among them.
  Communicator new_group(std::span<const int> ranks);
  // Makes the group of new_group() without a wait: the Work ends when all members have called it. Calls may be made in
  // the new group at once, and end after that. Calls of other series, and new_group(), may come in another order. The
  // Work is empty where this rank is the only member. series: below 2^64-1.
  std::pair<Communicator, Work> new_group_async(std::span<const int> ranks, uint64_t series);
  // The same ranks once more: calls, messages and failures of the one are none of the other. Called by all of them, in
  // the same order.
  Communicator dup();

  // --- After a failure (docs/recovery.md)
  // The ranks that live go on, renumbered in their order, as the next epoch of this communicator, which is closed then;
  // memory of allocate() is of both: it is there until the last of them ends. Called by all that live, once a call has
  // failed: one that lives and has not called within `timeout` (0: Config::start_timeout_ms) is left out. Where this
  // communicator has not failed, it fails on all ranks first. One that dies meanwhile is left out, too.
  //
  // Throws kNoQuorum: others may go on, and this rank cannot. A quorum is a majority of this communicator's ranks, half
  // of them with rank 0, or all but those whose processes have been seen to end on a host of a rank that lives.
  // kEpochStale: the others go on without this rank. kTimeout.
  Communicator shrink(std::chrono::milliseconds timeout = {});
  // Takes in processes that wait at JoinOptions::newcomers. Called by all ranks, with the same number, while no call is
  // pending. Returns the next epoch: the living ranks in their order, then the newcomers in the order of their arrival,
  // who come out of join() with its epoch() and committed(). State is handed over by a broadcast of the program's.
  // Where newcomers die in their start, or a rank does, the ranks that live go on without newcomers: size() says so.
  // This communicator is closed then. Memory of allocate() stays, as plain memory to the next one.
  //
  // Throws kTimeout on all ranks where fewer have come within `timeout` (0: Config::start_timeout_ms, which also bounds
  // the start), kInvalid where one refuses its arguments, kInvalid and kBootstrap where rank 0 cannot serve an address:
  // then this communicator goes on. Else what shrink() throws. Only for the communicator of join(), and what shrink()
  // and grow() have made of it.
  Communicator grow(int newcomers, std::chrono::milliseconds timeout = {});
  // Collective: how many processes wait to be taken in, the same on all ranks.
  int newcomers();
  // How often it has shrunk or grown.
  uint64_t epoch() const;
  // Collective: all ranks have come to this step (0 or more, and more than the one before), and with the same digest of
  // what they hold. Where it throws, the step may be committed on other ranks: committed() after shrink() says so, the
  // same on all ranks. Ranks that differ: kMismatch (step) or kCorrupt (digest), which fails the communicator on all.
  void commit(int64_t step, uint64_t digest = 0);
  // The last step that was committed; -1: none.
  int64_t committed() const;

  // --- The end
  // The failure, if the communicator is failed.
  std::optional<Error> error() const;
  // Fails this communicator on all ranks: pending and later calls end with kAborted. Any thread.
  void abort(const std::string& reason = "");
  // abort() for a signal handler: async-signal-safe, since it is one atomic store and a write to an eventfd; a thread
  // of the library tells the other ranks. Only while no other thread destroys, moves or assigns this object. Later
  // calls fail at once, waiting ones within 20 ms.
  void abort_from_signal() noexcept;
  // Tells the others that this rank leaves, which is no failure to them, and waits until they have done so, at most
  // Config::destroy_timeout_ms. Pending operations fail with kClosed. A second call does nothing.
  void destroy();
  // Destroys without a wait. False: others have not left yet, or another thread is destroying it; call it again, or
  // destroy(), whose time counts from the first of these calls. With GPU memory attached it waits for what is under way
  // in streams.
  bool try_destroy();

 private:
  friend class CommunicatorAccess;  // compress/
  struct State;
  explicit Communicator(std::shared_ptr<State> state);
  void abandon_batch();
  std::shared_ptr<State> state_;
};

// A batch for a scope: an exception on the way out abandons it. The communicator must stay where it is until the end.
class BatchScope {
 public:
  explicit BatchScope(Communicator& communicator) : communicator_(&communicator) { communicator.batch_begin(); }
  ~BatchScope() {
    if (communicator_ != nullptr) communicator_->batch_abandon();
  }
  BatchScope(const BatchScope&) = delete;
  BatchScope& operator=(const BatchScope&) = delete;

  // One of these, once.
  void end() { std::exchange(communicator_, nullptr)->batch_end(); }
  Work end_async() { return std::exchange(communicator_, nullptr)->batch_end_async(); }

 private:
  Communicator* communicator_;
};

}  // namespace rondo

#endif  // C++20
