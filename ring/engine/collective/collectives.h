#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "ring/base/node_list.h"
#include "ring/engine/collective/call_execution.h"
#include "ring/engine/collective/call_watch.h"
#include "ring/engine/collective/collective_operation.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/progress/flow.h"
#include "ring/engine/route/router.h"

namespace rondo {

// What a communicator that has failed still has in streams of a device.
enum class StreamsEnd : uint8_t {
  kAtWork,       // something that touches the memory of its operations
  kEntriesLeft,  // entries that touch nothing, and must not wait
  kDrained
};

// The collective operations of one communicator: one after the other, in call order.
class Collectives final : public Flow {
 public:
  Collectives(std::shared_ptr<CommunicatorContext> context, std::shared_ptr<Doorbell> bell,
              std::shared_ptr<Worker> worker, WaitPolicy policy);

  // Checks, resolves and keeps what equal calls have in common. Throws Exception(kInvalid). Any thread.
  std::shared_ptr<PreparedCall> prepare(CheckedCall call) const;
  // The route of such a call now, of buffers that are all registered, or not. Any thread.
  Algorithm algorithm_for(const CheckedCall& call, bool registered) const;
  const Router& router() const { return router_; }

  // --- under the caller's submission lock, which gives calls their order
  // Puts the operation at the end of the queue and numbers it. Does not drive. One on a stack must be waited for.
  void submit(CollectiveOperation& operation) noexcept;
  // Before any other: CallExecution::make_opening_run().
  OperationRef<CollectiveOperation> submit_opening(Purpose by, Clock::time_point deadline);
  // Runs an operation on this thread's stack to its end: at once, if nothing is under way. The submission lock is
  // unlocked once it has its number.
  void run(CollectiveOperation& operation, std::unique_lock<std::mutex>& order);

  // `peer` (a rank of the group) left after this call; later ones cannot complete. Any thread.
  void peer_left(int peer, uint64_t last_sequence);
  // let_go: lets the streams of a device go on, when the communicator has failed; asked before the operations end, and
  // then until the streams are drained. Any thread.
  using LetGo = std::function<StreamsEnd(Clock::time_point now)>;
  void set_streams(LetGo let_go);
  // After the communicator has failed: ends what is pending and closes the links.
  void shut_down();

 protected:
  bool step(Pass pass) override;
  void tick(Clock::time_point now) override;
  void interrupted() override { context_->interrupt(); }
  void broke(const Error& error) override { context_->fail(error); }

 private:
  void number(CollectiveOperation& operation, uint64_t sequence);
  void enqueue(CollectiveOperation& operation);
  bool take_next();
  void begin(CollectiveOperation& operation) {
    current_ = &operation;
    operation.become(CollectiveOperation::State::kRunning);
    state().count(1);
    began_at_ = 0;
    if (context_->observed.on()) observe_begin();
  }
  void end_current(const Error* error);
  void observe_begin();
  void observe_end(const Error* error);
  void observe_look(uint64_t at);
  bool refuse(const Error& reason);
  bool fail_all(const Error& error);
  bool close_buffers(Clock::time_point now);
  bool let_streams_go(Clock::time_point now);
  const CollectiveOperation* late(Clock::time_point at);

  const std::shared_ptr<CommunicatorContext> context_;  // shared with the communicator and its messages
  const Router router_;
  uint64_t last_sequence_ = kMeetingSequence;  // under the submission lock

  std::mutex queue_mutex_;
  NodeList<CollectiveOperation> queue_;
  std::atomic<uint64_t> last_possible_{UINT64_MAX};  // calls beyond it lack a member that has left
  std::atomic<int> left_{-1};

  // Under the lease.
  CallExecution execution_;
  CallWatch watch_;
  LetGo streams_let_go_;         // empty: there are none
  bool streams_linger_ = false;  // counted as an operation, so that a thread goes on with them
  CollectiveOperation* current_ = nullptr;
  uint64_t began_at_ = 0;   // of current_, for the observer; 0: it was not on
  uint64_t looked_at_ = 0;  // likewise: when this rank last looked at the clock
};

}  // namespace rondo
