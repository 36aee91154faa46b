#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/call.h"
#include "rondo/error.h"
#include "rondo/op.h"
#include "rondo/sparse.h"
#include "rondo/work.h"

// An API of the library as a rank of a life uses it: C++ (door_cpp.cc), C (door_c.cc), or one of a program in another
// language (door_asked.h).
namespace rondo::life {

enum class Verb {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kAllGatherV,
  kReduceScatterV,
  kGatherV,
  kScatterV,
  kAllToAllV,
  kAllReduceMany,
  kScan,
  kExscan,
  kSend,
  kRecv,
  kMatchedProbe,  // blocking alone
  kSendRecv,
};

// One call of one rank; what a verb does not take is ignored.
struct Call {
  Verb verb = Verb::kBarrier;
  const void* in = nullptr;
  void* out = nullptr;  // broadcast and recv: the buffer
  uint64_t count = 0;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int root = 0;  // send, recv: the peer; sendrecv: from
  int to = 0;    // sendrecv
  int tag = 0;
  uint64_t matched = 0;                                 // recv: Message::matched of a probe; 0: of none
  std::vector<uint64_t> counts, displacements;          // of v calls; all_to_all_v: those sent
  std::vector<uint64_t> out_counts, out_displacements;  // all_to_all_v: those received
  std::vector<TensorRef> tensors;
  CallOptions options;
};

// A call under way.
class Handle {
 public:
  virtual ~Handle() = default;
  virtual bool done() = 0;
  virtual Error wait() = 0;
  virtual void on_end(std::function<void()> function) = 0;
  virtual rondo::Message message() = 0;
};

// A communicator. What it returns is the failure, ok() if there was none.
class Group {
 public:
  virtual ~Group() = default;
  virtual Error run(const Call& call, rondo::Message* message = nullptr) = 0;
  virtual Error start(const Call& call, std::unique_ptr<Handle>* handle) = 0;
  virtual Error sparse(const float* in, float* out, uint64_t count, const SparseOptions& options) = 0;
  virtual Error batch_begin() = 0;
  virtual Error batch_end(std::unique_ptr<Handle>* handle) = 0;  // nullptr: waits
  virtual Error split(int color, int key, std::unique_ptr<Group>* group) = 0;
  virtual Error new_group(const std::vector<int>& ranks, std::unique_ptr<Group>* group) = 0;
  virtual Error attach_device() = 0;
  // The group becomes its next epoch.
  virtual Error shrink() = 0;
  virtual Error grow(int newcomers) = 0;
  virtual Error commit(int64_t step, uint64_t digest) = 0;
  virtual int64_t committed() = 0;
  virtual uint64_t epoch() = 0;
  virtual int rank() = 0;
  virtual int size() = 0;
  virtual void* allocate(size_t bytes) = 0;  // nullptr: none
  virtual void deallocate(void* data) = 0;
  virtual Error abort(const std::string& reason) = 0;
  virtual Error error() = 0;
  virtual Error destroy() = 0;
  virtual Communicator* communicator() { return nullptr; }  // of C++
  // Three steps of DistOpt, which goes on from epoch to epoch; of NumPy, where all ranks are.
  virtual Error train() { return {}; }
  // Whether this API has words for the mistake, `what` of a line `bad`.
  virtual bool can_say(const std::string&) { return true; }
};

// The process joins by the environment's settings. rank -1: as a newcomer.
Error join_cpp(int rank, int world, const std::string& meeting, std::unique_ptr<Group>* group);
Error join_c(int rank, int world, const std::string& meeting, std::unique_ptr<Group>* group);
std::vector<std::unique_ptr<Group>> threads_cpp(int world);
std::vector<std::unique_ptr<Group>> threads_c(int world);

}  // namespace rondo::life
