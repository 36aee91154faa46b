#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/collective.h>
#include <rondo/config.h>
#include <rondo/dtype.h>
#include <rondo/error.h>
#include <rondo/export.h>
#include <rondo/op.h>
#include <rondo/topology.h>

namespace rondo {

class Store;
class Operation;  // what a Work refers to; internal

// A handle to an operation under way. Copies refer to the same operation; destroying the last one detaches it (it goes
// on by itself, and the buffers must stay valid until it is done). Of an empty one all but valid() throw kInvalid. Any
// thread.
class RONDO_EXPORT Work {
 public:
  Work();
  explicit Work(std::shared_ptr<Operation> operation);
  Work(const Work&);
  Work& operator=(const Work&);
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  bool valid() const;
  // True once the operation has succeeded or failed: from then on nothing touches the caller's memory.
  bool done() const;
  // Waits for at most `timeout`; drives the operation on this thread meanwhile. True: it succeeded. False: the wait ran
  // out, which is no error; the operation goes on. Throws Exception if the operation failed.
  bool wait(std::chrono::nanoseconds timeout);
  // Waits until the operation succeeds, or throws its failure (at the latest its own deadline's kTimeout).
  void wait();
  // The failure; nullopt while it runs and after success.
  std::optional<Error> error() const;
  // send, recv: what was received (or sent): the peer's rank, the tag and the message's length in bytes.
  // Requires done() and no error.
  struct Message {
    int peer = -1;
    int tag = -1;
    uint64_t bytes = 0;
  };
  Message message() const;

 private:
  std::shared_ptr<Operation> operation_;
};

// How a process joins a group of processes. Fields left at -1 or empty are taken from the environment, in this order:
// RONDO_*; RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them, or you
// by hand; Open MPI's, MPICH's (PMI) and Slurm's variables (docs/bootstrap.md).
struct JoinOptions {
  int rank = -1;
  int world = -1;
  // "tcp://host:port" (rank 0 serves), "file:///path" (a shared file), "unique:..." (a string made by UniqueIdServer),
  // "unix:///path"; empty: from the environment.
  std::string rendezvous;
  std::string job_id;  // processes with different ones refuse each other; empty: from the environment, else "default"
  // Instead of a rendezvous string: a store of the caller's, alive until the communicator and its subgroups are
  // destroyed.
  std::shared_ptr<Store> store;
  Config config = Config::from_environment();
};

inline constexpr int kAnySource = -1;
inline constexpr int kAnyTag = -1;

// Options of one call; every field has the value that most calls want.
struct CallOptions {
  Algorithm algorithm = Algorithm::kAuto;  // equal on all ranks
  std::chrono::milliseconds timeout{0};    // 0: Config::timeout_ms
  double scalar = 1.0;                     // Op::kPremulSum: this rank's factor
};

// One tensor of Communicator::all_reduce_many(); in place: input == output.
struct TensorRef {
  const void* input = nullptr;
  void* output = nullptr;
  uint64_t count = 0;  // elements
  DType dtype = DType::kFloat32;
};

// A group of ranks that work together. Collective calls must be made by all ranks of the group in the same order; they
// are checked against each other and end in kMismatch, not in a hang or in wrong data. Any thread may call; calls on
// one communicator are serialised in call order. send/recv are independent of the collectives.
//
// Buffers: `count` is elements of `dtype`; no alignment is needed; in place is input == output (for all_gather and
// gather: input == output + rank * count; for reduce_scatter and scatter: output == input + rank * count; all_to_all in
// place is invalid); any other overlap is kInvalid. Calls that return Work need the buffers until it is done.
//
// Errors: blocking calls and Work::wait() throw Exception. kInvalid is thrown before anything happens and leaves the
// communicator usable. After any other error of an operation the communicator is failed: every later call throws the
// same error (where ranks died: with those who have died since), and only abort() and destroy() remain.
class RONDO_EXPORT Communicator {
 public:
  // Joins; returns when every rank is known and has exchanged a frame with both ring neighbours on every lane.
  // Throws kInvalid, kBootstrap (error().ranks are those missing), kNetwork, kTimeout, kSystem (descriptors, memory,
  // threads).
  static Communicator join(const JoinOptions& options = {});
  // `world` ranks (1 .. 1024, else kInvalid) as threads of this process, over memory; one thread a rank. [r] is rank
  // r's. The default configuration does not read RONDO_*: pass Config::from_environment() for that.
  static std::vector<Communicator> inproc(int world, const Config& config = {});

  Communicator();  // empty; valid() is false
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  ~Communicator();  // destroy(), without throwing

  bool valid() const;
  // Of this communicator; place(): of the process in the job, the same for all of its communicators. References hold as
  // long as this object. Of an empty one all but valid(), destroy() and group_abandon() throw kClosed.
  int rank() const;
  int size() const;
  const Place& place() const;
  const Topology& topology() const;
  const Config& config() const;
  // The algorithm that a call of these arguments runs (after kAuto is resolved). registered: the buffers of all ranks
  // are from allocate().
  Algorithm algorithm_for(Collective collective, uint64_t count, DType dtype, Op op = Op::kSum,
                          bool registered = false) const;

  // --- collectives, blocking
  // count: elements. all_reduce, reduce, broadcast: of the whole buffer. all_gather, gather: input count, output
  // size() * count, by rank (gather: on the root; elsewhere it may be null). reduce_scatter, scatter: input
  // size() * count (scatter: on the root; elsewhere it may be null), output count. all_to_all: both size() * count;
  // block r of the input goes to rank r. kInvalid: a null buffer that would be used, a root that is no rank, an
  // operation that the type lacks (docs/numerics.md), a negative timeout.
  void all_reduce(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
                  const CallOptions& options = {});
  void reduce(const void* input, void* output, uint64_t count, DType dtype, Op op, int root,
              const CallOptions& options = {});  // output is written on the root only; may be null elsewhere
  void broadcast(void* buffer, uint64_t count, DType dtype, int root, const CallOptions& options = {});
  void all_gather(const void* input, void* output, uint64_t count, DType dtype, const CallOptions& options = {});
  void reduce_scatter(const void* input, void* output, uint64_t count, DType dtype, Op op = Op::kSum,
                      const CallOptions& options = {});
  void gather(const void* input, void* output, uint64_t count, DType dtype, int root, const CallOptions& options = {});
  void scatter(const void* input, void* output, uint64_t count, DType dtype, int root, const CallOptions& options = {});
  void all_to_all(const void* input, void* output, uint64_t count, DType dtype, const CallOptions& options = {});
  void barrier(const CallOptions& options = {});
  // Uneven counts. counts[r]: elements of rank r's block; blocks lie one after the other unless displacements (in
  // elements) say otherwise. Spans have size() entries, else kInvalid. all_gather_v, reduce_scatter_v: the same counts
  // on all ranks, else kMismatch. The others: what a rank sends itself is what it expects, else kInvalid.
  void all_gather_v(const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                    std::span<const uint64_t> displacements = {}, const CallOptions& options = {});
  void reduce_scatter_v(const void* input, void* output, std::span<const uint64_t> counts, DType dtype,
                        Op op = Op::kSum, const CallOptions& options = {});
  // gather_v, scatter_v: `count` is this rank's own; counts and displacements are read on the root only.
  void gather_v(const void* input, uint64_t count, void* output, std::span<const uint64_t> counts, DType dtype,
                int root, std::span<const uint64_t> displacements = {}, const CallOptions& options = {});
  void scatter_v(const void* input, std::span<const uint64_t> counts, void* output, uint64_t count, DType dtype,
                 int root, std::span<const uint64_t> displacements = {}, const CallOptions& options = {});
  void all_to_all_v(const void* input, std::span<const uint64_t> send_counts, void* output,
                    std::span<const uint64_t> recv_counts, DType dtype,
                    std::span<const uint64_t> send_displacements = {},
                    std::span<const uint64_t> recv_displacements = {}, const CallOptions& options = {});

  // --- any collective by description: what the calls above are made of.
  struct Call {
    Collective collective = Collective::kAllReduce;
    const void* input = nullptr;
    void* output = nullptr;  // broadcast: the buffer
    uint64_t count = 0;      // as in the call above; ignored where counts are given
    DType dtype = DType::kFloat32;
    Op op = Op::kSum;
    int root = -1;
    bool uneven = false;                                                  // a v-variant: the spans below count
    std::span<const uint64_t> input_counts, output_counts;                // read during the call only
    std::span<const uint64_t> input_displacements, output_displacements;  // empty: one after the other
    CallOptions options;
  };
  Work start(const Call& call);
  void run(const Call& call);  // the same, blocking

  // --- many tensors at once
  // all_reduce of every tensor: the gradients of a step. The same list on all ranks: counts, types, order, op. Small
  // tensors share operations of at most Config::bucket_bytes, copied together and apart again; large ones run where
  // they lie. Each result has the bits that its bucket has as one all_reduce, the same on all ranks. An output must not
  // overlap another tensor. Lists that differ between ranks end in kMismatch before anything is written.
  // kPremulSum: one factor for the whole list.
  void all_reduce_many(std::span<const TensorRef> tensors, Op op = Op::kSum, const CallOptions& options = {});
  Work start_all_reduce_many(std::span<const TensorRef> tensors, Op op = Op::kSum, const CallOptions& options = {});

  // Call groups. Calls that this thread makes on this communicator between group_start() and group_end() - collectives,
  // lists, send, recv - check their arguments, return at once, and are submitted together at the end: collectives in
  // their order, consecutive all_reduces as all_reduce_many() does them (but kPremulSum: each by itself), sends and
  // receives beside them in whatever order. All ranks must group consecutive all_reduces alike. Until the end nothing
  // is read or written; the buffers must stay valid until the whole call group is done.
  //
  // In a call group, start() and start_all_reduce_many() return the Work of the whole call group, isend() and irecv()
  // their own, and recv() and sendrecv() an empty Message. Such Works are for this thread until the call group has
  // ended; waiting for them before is kInvalid. Calls of other threads are not collected and run at once. kInvalid:
  // a second group_start() by whatever thread, an end without a start or by another thread, split() and new_group(),
  // more than 65,536 calls.
  // A call that throws is not collected; the rest is. Blocking calls of other communicators run at once.
  void group_start();
  // Waits until all of it is done; throws its first failure. kInvalid (overlapping all_reduces, an algorithm that there
  // is not): nothing was submitted. The call group is closed, whatever it throws.
  void group_end();
  // The same, without waiting.
  Work group_end_async();
  // Forgets the calls collected; Works of them fail with kInvalid. Without a call group it does nothing. Any thread.
  void group_abandon();

  // --- point to point. tag 0 .. 2^31-1; kAnyTag and kAnySource match all. Messages of one (pair, tag) stay in order.
  // A message longer than the receiver's buffer fails both sides with kMismatch; a shorter one reports its length.
  void send(const void* data, uint64_t count, DType dtype, int peer, int tag = 0, const CallOptions& options = {});
  Work::Message recv(void* data, uint64_t count, DType dtype, int peer, int tag = 0, const CallOptions& options = {});
  Work isend(const void* data, uint64_t count, DType dtype, int peer, int tag = 0, const CallOptions& options = {});
  Work irecv(void* data, uint64_t count, DType dtype, int peer, int tag = 0, const CallOptions& options = {});
  Work::Message sendrecv(const void* send_data, uint64_t send_count, int to, void* recv_data, uint64_t recv_count,
                         int from, DType dtype, int tag = 0, const CallOptions& options = {});

  // --- registered memory
  // Memory that every rank of this host maps (where ranks share memory; else plain memory, just as good for calls).
  // Collectives whose buffers lie in it on all ranks work on them directly, the fastest way inside a host, wherever
  // that is worth it: all_reduce above 8 KiB, the others by size (docs/plans.md) and from 256 KiB on always. Not so
  // uneven (v) calls and kPremulSum. CallOptions::algorithm = kRegistered insists, and is kInvalid on all ranks where
  // some buffer is not registered.
  // Zeroed, aligned to a page; allocating it costs system calls and faults in every page, so keep it. Registered for
  // this communicator and for all others of the same join(); plain memory for those of another. Given back by
  // deallocate() on this communicator (null is fine; also after destroy()), or with this object. While a call is under
  // way, and after it has failed until destroy() has returned, other ranks may write to it.
  // Throws kInvalid for 0 bytes and for memory that this communicator has not allocated, kSystem when memory,
  // descriptors or mappings run out (16,384 pieces a process); neither fails the communicator. Not collective. Any
  // thread.
  void* allocate(size_t bytes);
  void deallocate(void* data);

  // --- groups
  // Collective over this communicator: ranks with the same colour form a group, ordered by (key, rank).
  // colour < 0: no group, an empty Communicator.
  Communicator split(int colour, int key = 0);
  // Called by the members only, in the same order by all; `ranks` are of this communicator, no duplicates, and become
  // 0, 1, ... in the order given. Throws kInvalid if this rank is not among them.
  // Both: if a member cannot make the group (kSystem: no descriptors), all of its members throw that error, which names
  // the rank; this communicator goes on.
  Communicator new_group(std::span<const int> ranks);

  // --- the end
  // The failure, if the communicator has failed.
  std::optional<Error> error() const;
  // Fails this communicator here and on every other rank: pending and later calls end with kAborted. Any thread.
  void abort(const std::string& reason = "");
  // Says goodbye to the others, so that leaving is no crash to them; waits for their goodbye, at most
  // Config::destroy_timeout_ms. Pending operations fail with kClosed. Twice is fine.
  void destroy();

 private:
  class State;
  explicit Communicator(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// A call group for a scope: an exception on the way out abandons it. The communicator must outlive it, where it is.
class CallGroup {
 public:
  explicit CallGroup(Communicator& communicator) : communicator_(&communicator) { communicator.group_start(); }
  ~CallGroup() {
    if (communicator_ != nullptr) communicator_->group_abandon();
  }
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;

  // Once.
  void end() { std::exchange(communicator_, nullptr)->group_end(); }
  Work end_async() { return std::exchange(communicator_, nullptr)->group_end_async(); }

 private:
  Communicator* communicator_;
};

}  // namespace rondo
