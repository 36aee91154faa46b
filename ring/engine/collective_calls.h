#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "ring/engine/collective/collectives.h"
#include "ring/engine/route/prepared_call.h"
#include "ring/engine/tensor_lists.h"
#include "rondo/call.h"

namespace rondo {

class CommunicatorState;

// A communicator's collective calls: arguments become operations, in call order. It checks the arguments, finds
// or makes the PreparedCall, and hands the operation to Collectives, which numbers and moves it. It moves no
// byte itself.
//
// The CommunicatorState owns it. Operations hold a reference to the flow, so a Work may outlive this object.
// Any thread may call it.
class CollectiveCalls {
 public:
  // group has this as a member.
  CollectiveCalls(CommunicatorState& group, CommunicatorContext& context, std::shared_ptr<Collectives> flow)
      : group_(group), context_(context), flow_(std::move(flow)) {}

  Algorithm algorithm_for(const Call& call, bool registered) const;

  // run() returns when the result is there. If nothing else is under way, this thread moves the call at once,
  // without the queue. start() returns after the submission; a waiting thread or the worker moves the
  // operation. With a stream, both return when the call is in the stream. Both throw Exception.
  void run(const Call& call);
  OperationRef<Operation> start(const Call& call);

  // A call as an operation that is not submitted yet. Throws Exception where no plan does what was asked for.
  OperationRef<CollectiveOperation> make(const CheckedCall& call, const CallBuffers& buffers);
  // Submits all of them, with no other call between; if it throws, nothing is under way. Does not drive.
  void submit_all(std::span<const OperationRef<CollectiveOperation>> operations);

  // One record of each rank, in rank order: an all_gather of the library's own. The memory for the result is
  // allocated before the exchange. After it the other ranks rely on this rank, so nothing may fail here any
  // more.
  template <typename Record>
  std::vector<Record> gather(const Record& own, Purpose purpose, std::chrono::milliseconds timeout = {}) {
    std::vector<Record> all;
    context_.with_memory([&] { all.resize(static_cast<size_t>(context_.world())); });
    gather(&own, all.data(), sizeof(Record), purpose, timeout);
    return all;
  }

  // The first operation of a communicator: posts among few ranks of an island, else a frame to and from both
  // ring neighbors (CallExecution::make_opening_run). It makes the connections or the memory that every call needs.
  // Throws a failure that comes while the communicator is being made. If a member fails after
  // it has the communicator (Stage::kUse), this returns: the first call of this rank throws that.
  void meet_neighbors(Purpose by, Clock::time_point deadline);
  // meet_neighbors() without waiting. CommunicatorState::made() is called when the operation ends.
  OperationRef<Operation> start_opening(Purpose by);
  // The operation of start_opening(); null: there is none. destroy() waits for it, since a rank that leaves
  // before fails it on the other ranks.
  const OperationRef<CollectiveOperation>& opening() const { return opening_; }

  TensorLists& lists() { return lists_; }
  const std::shared_ptr<Collectives>& flow() const { return flow_; }

 private:
  std::shared_ptr<PreparedCall> prepare(const CheckedCall& call);
  std::shared_ptr<PreparedCall> prepare(const Call& call);
  OperationRef<CollectiveOperation> make(std::shared_ptr<PreparedCall> call, const CallBuffers& buffers) const;
  OperationRef<CollectiveOperation> submit_recoverable(const Call& call);
  void gather(const void* own, void* all, size_t bytes, Purpose purpose, std::chrono::milliseconds timeout);

  CommunicatorState& group_;
  CommunicatorContext& context_;
  const std::shared_ptr<Collectives> flow_;  // shared with Works, which may outlive the group
  std::mutex submit_mutex_;                  // its order is the call order; nobody waits for an operation under it
  PreparedCalls prepared_;                   // under submit_mutex_
  TensorLists lists_{group_};
  OperationRef<CollectiveOperation> opening_;
};

}  // namespace rondo
