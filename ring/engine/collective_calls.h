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

// A communicator's collective calls: from arguments to operations in their flow, in the order in which they come here.
// Any thread.
class CollectiveCalls {
 public:
  // group has this as a member.
  CollectiveCalls(CommunicatorState& group, CommunicatorContext& context, std::shared_ptr<Collectives> flow)
      : group_(group), context_(context), flow_(std::move(flow)) {}

  Algorithm algorithm_for(const Call& call, bool registered) const;

  // run(): at once on this thread, while nothing else is under way. start(): submitted, and left to the worker. On a
  // stream: in it when either returns. Throw Exception.
  void run(const Call& call);
  OperationRef<Operation> start(const Call& call);

  // A call as an operation that is not submitted yet. Throws Exception where no plan does what was asked for.
  OperationRef<CollectiveOperation> make(const CheckedCall& call, const CallBuffers& buffers);
  // Submits all of them, with no other call between; if it throws, nothing is under way. Does not drive.
  void submit_all(std::span<const OperationRef<CollectiveOperation>> operations);

  // What each rank gives, by rank: an all_gather of the library's own. Its memory is there before the exchange, after
  // which the other ranks count on this one.
  template <typename Record>
  std::vector<Record> gather(const Record& own, Purpose purpose, std::chrono::milliseconds timeout = {}) {
    std::vector<Record> all;
    context_.with_memory([&] { all.resize(static_cast<size_t>(context_.world())); });
    gather(&own, all.data(), sizeof(Record), purpose, timeout);
    return all;
  }

  // Exchanges a frame with both ring neighbors on every lane. Throws what went wrong, but for what a member has met
  // that has it already: this rank's first call throws that.
  void meet_neighbors(Purpose by, Clock::time_point deadline);
  // The same, left to the worker; CommunicatorState::made() follows.
  OperationRef<Operation> start_opening(Purpose by);
  // What start_opening() has started; null: nothing. Who leaves before it is over ends it for the others, too.
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
  std::mutex submit_mutex_;                  // calls are serialized in the order in which they get it
  PreparedCalls prepared_;                   // what equal calls have in common, kept
  TensorLists lists_{group_};
  OperationRef<CollectiveOperation> opening_;
};

}  // namespace rondo
