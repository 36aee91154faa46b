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

// What a failed communicator still has in the streams of a device.
enum class StreamsEnd : uint8_t {
  kAtWork,       // something that touches the memory of its operations
  kEntriesLeft,  // entries that touch nothing, and must not wait
  kDrained
};

// The collectives of one communicator: they run one after the other, in call order. It numbers an operation,
// queues it, and makes it current when the one before has ended; CallExecution moves the current one, CallWatch
// finds out why it does not move.
//
// Three kinds of access: submitting is under the caller's submission lock, moving under the flow's lease, the
// queue under its own lock. Submission lock, then lease, then queue lock is the order in which a thread takes
// them.
class Collectives final : public Flow {
 public:
  Collectives(std::shared_ptr<CommunicatorContext> context, std::shared_ptr<Doorbell> bell,
              std::shared_ptr<Worker> worker, WaitPolicy policy);

  // Works out what equal calls share: what they may run, and their kind. Throws Exception(kInvalid) where no
  // plan does what the call asks for. Any thread.
  std::shared_ptr<PreparedCall> prepare(CheckedCall call) const;
  // What such a call would run now, with all buffers registered or not. Any thread.
  Algorithm algorithm_for(const CheckedCall& call, bool registered) const;
  const Router& router() const { return router_; }

  // Numbers the operation and puts it at the end of the queue. Does not move it. An operation on a stack must
  // be waited for.
  void submit(CollectiveOperation& operation) noexcept;
  // Submits the first operation of the communicator (CallExecution::make_opening_run), before any other.
  OperationRef<CollectiveOperation> submit_opening(Purpose by, Clock::time_point deadline);
  // Runs an operation on this thread's stack to its end. If nothing is under way it begins at once, without
  // queue and clock. `order` is the submission lock; it is unlocked once the operation has its number.
  void run(CollectiveOperation& operation, std::unique_lock<std::mutex>& order);

  // `peer` (a rank of the group) said goodbye after this call. Operations up to it may still complete, since
  // the peer has done its part; later ones fail. Any thread.
  void peer_left(int peer, uint64_t last_sequence);
  // let_go lets the streams of a device go on after a failure. It is asked before the operations end, and then
  // until the streams are drained. Any thread.
  using LetGo = std::function<StreamsEnd(Clock::time_point now)>;
  void set_streams(LetGo let_go);
  // After the communicator has failed: ends what is pending, closes the links and gives shared memory back. By
  // destroy().
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

  // Held for a push, a pop or a walk of the queue; nothing foreign runs under it.
  std::mutex queue_mutex_;
  NodeList<CollectiveOperation> queue_;
  std::atomic<uint64_t> last_possible_{UINT64_MAX};  // later calls lack a member that has left
  std::atomic<int> left_{-1};                        // that member

  // Under the lease.
  CallExecution execution_;
  CallWatch watch_;
  LetGo streams_let_go_;         // empty: there are none
  bool streams_linger_ = false;  // counted as an operation, so that a thread goes on with them
  CollectiveOperation* current_ = nullptr;
  uint64_t began_at_ = 0;   // of current_, for the observer; 0: the observer was off
  uint64_t looked_at_ = 0;  // likewise: when this rank last looked at the clock
};

}  // namespace rondo
