#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ring/base/node_list.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/device/gate.h"
#include "ring/engine/p2p/p2p.h"
#include "ring/engine/progress/flow.h"

namespace rondo {

class Messages;

// A send, a receive or a probe as an operation. It is a request of the state machine below, too
// (ring/engine/p2p), which calls complete() at its end.
class MessageOperation final : public Operation, private P2pRequest {
 public:
  // limit: the time from the call to the deadline. The first tick sets the deadline, so that a short message
  // needs no clock.
  MessageOperation(Messages& messages, const P2pCall& call, std::chrono::milliseconds limit)
      : P2pRequest(call), limit_(limit), messages_(messages) {
    if (sends()) message = {peer, tag, bytes};
  }
  // Makes it another message. Requires that it has ended, and that nobody else refers to it.
  void renew(const P2pCall& call, std::chrono::milliseconds limit);
  const P2pCall& call() const { return *this; }
  const Message* moved_message() const override { return &message; }
  bool cancel() override;
  bool wait(Clock::time_point until) override;
  // "recv(4096 bytes from rank 1, tag 7)", for errors; peer in it is of the group.
  std::string text() const;
  bool background = false;     // no blocking call waits for it: it moves while its rank does other things
  std::shared_ptr<Gate> gate;  // of a message in a stream, which submits it; ended() is called at the end

  // Neighbors in the list of what has been submitted, or is under way.
  MessageOperation* next = nullptr;
  MessageOperation* previous = nullptr;

 private:
  friend class Messages;
  // The state machine calls it in run_done(), so under the lease.
  void complete(const Error* error) override { finish(error); }
  void finish(const Error* error);
  std::chrono::milliseconds limit_;
  Clock::time_point overdue_at_{};  // the first tick past its deadline, which has asked the members; zero: none has
  uint64_t began_at_ = 0;           // for the observer; 0: it was not on
  Messages& messages_;              // its flow; `flow` is null for an operation on a stack
};

// The sends and receives of one communicator, independent of its collectives. It is the state machine P2p
// (ring/engine/p2p) with what that has not: threads, a lease, a clock, streams of the fabric.
//
// A message takes the shortest way that is open. It is over at once, if the lease is free and the peer's stream
// takes or has it. Else it becomes an operation, which the thread that waits moves, or the worker.
class Messages final : public Flow, private P2pStreams {
 public:
  Messages(std::shared_ptr<CommunicatorContext> context, std::shared_ptr<Doorbell> bell, std::shared_ptr<Worker> worker,
           WaitPolicy policy);

  // Queues the operation; does not move it. Any thread. Messages are matched in the order of these calls.
  void submit(MessageOperation& operation);
  // submit() by a function in a stream; a thread is woken. Behind shut_down() the operation ends here.
  void submit_from_stream(MessageOperation& operation);
  // Waits for the operation at most until then; true if it is done. After stall_ms the other ranks can learn of
  // the wait when they ask: so a collective that waits for a rank in a receive is reported as a mismatch. After
  // two heartbeats, four, and so on, the log says for whom this rank waits.
  bool wait_and_tell(const MessageOperation& operation, Clock::time_point until);
  void wait_blocking(const MessageOperation& operation) { wait_and_tell(operation, Clock::time_point::max()); }
  // Runs a call, or a send and then a receive at the same time, to their ends on this thread. Returns what the
  // last one has moved. Throws its failure, or that of the send, beside which the receive is taken back.
  Message run(std::span<const P2pCall> calls, std::chrono::milliseconds limit);
  // Makes an operation for submit().
  OperationRef<MessageOperation> make(const P2pCall& call, std::chrono::milliseconds limit);
  // Starts an asynchronous message. A reference of `over`: it is over already, and `moved` says what has moved; that
  // took no lock and no memory, and woke nobody but the peer. Throws std::bad_alloc: it has not begun.
  OperationRef<Operation> start(const P2pCall& call, std::chrono::milliseconds limit, ReferenceStock<Operation>& over,
                                Message& moved);
  // Whether there is a message that the probe asks for, after a look at the streams. Throws the probe's
  // failure.
  std::optional<Message> look(const P2pCall& probe);

  // Why the communicator is over; nullptr: it is not. Any thread.
  const Error* failure() const { return context_->failure.get(); }
  // Messages are under way that no blocking call waits for: this rank may end what another waits for, though
  // its thread is in a collective.
  bool in_background() const { return state().submitted() || background_.load(std::memory_order_relaxed) > 0; }
  // Bytes that all of them have moved, both ways; grows while one comes on. Any thread.
  uint64_t moved_bytes() const { return moved_bytes_.load(std::memory_order_relaxed); }

  void peer_left(int peer);  // of the group. Any thread
  // destroy() in good order: ends what is pending, tells the peers that nothing more comes, and writes until
  // the deadline what is still to be written. True: all is written.
  bool finish(Clock::time_point deadline);
  // Closes the streams. Messages that another thread submits meanwhile end here (end_late), later ones in submit().
  void shut_down();

 protected:
  // Flow's. An exception in the state machine fails the communicator, and leaves none of these.
  bool step(Pass pass) override;
  void tick(Clock::time_point now) override;
  void interrupted() override { context_->interrupt(); }
  void broke(const Error& error) override { context_->fail(error); }

 private:
  friend class MessageOperation;
  // P2pStreams', under the lease: the fabric's streams, by rank of the group.
  std::unique_ptr<ByteStream> take_stream_to(int peer) override;
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from() override;
  // Runs the action. False: it has thrown, and the communicator fails. No exception passes: operations may lie
  // on the stack of this thread, or belong to other threads.
  template <typename Action>
  bool attempt(const Action& action) noexcept;
  // All these run under the lease, but for queued() and observe_end(), and for run_operations() and take_back(), which
  // ask for it.
  bool move(Pass pass);
  bool end_late();
  bool take_submitted();
  bool begin(MessageOperation& operation);
  size_t at_once(std::span<const P2pCall> calls, int looks, Message& moved);
  Message run_operations(std::span<const P2pCall> calls, std::chrono::milliseconds limit);
  OperationRef<MessageOperation> begin_here(const P2pCall& call, std::chrono::milliseconds limit, Left& left);
  OperationRef<MessageOperation> leave_to_holder(const P2pCall& call, std::chrono::milliseconds limit);
  OperationRef<MessageOperation> used_again(const P2pCall& call, std::chrono::milliseconds limit);
  void forget(MessageOperation& operation);
  // Under the lease. A plain load and store: it hands nothing over, and an exchange would cost a tenth of a
  // short message.
  void count_background(int change) {
    background_.store(background_.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
  }
  void queued(MessageOperation& operation);
  void linger(bool lingers);
  bool take_back(MessageOperation& operation, const Error& error);
  void end_pending(const Error& error);
  void observe_end(const MessageOperation& operation, const Error* error);
  void report();
  void time_out(Clock::time_point now, MessageOperation& operation);

  std::shared_ptr<CommunicatorContext> context_;  // shared with the communicator and its collectives
  // Guards submitted_ and left_. The mark in state() that says whether there is anything changes under it, too.
  std::mutex submitted_mutex_;
  NodeList<MessageOperation> submitted_;
  std::vector<int> left_;           // peers that have left; submitted(): one of the two is not empty
  std::atomic<int> background_{0};  // operations of active_ in the background; stored under the lease
  std::atomic<uint64_t> moved_bytes_{0};

  // Under the lease.
  std::unique_ptr<P2p> p2p_;
  NodeList<MessageOperation> active_;                 // counted; those without a deadline yet come last
  Clock::time_point due_ = Clock::time_point::max();  // no deadline of theirs is earlier
  // Operations that have ended, for asynchronous messages to come: at most kMostKept, each with a reference of
  // the flow's. A Work may still refer to one, which is not used again then.
  NodeList<MessageOperation> kept_;
  int kept_operations_ = 0;
  bool finishing_ = false;
  bool lingers_ = false;  // finish() has left bytes to write, which count as an operation
  bool ended_ = false;    // changed under submitted_mutex_, too
};

}  // namespace rondo
