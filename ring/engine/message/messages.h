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

// A send, a receive or a probe as an operation.
class MessageOperation final : public Operation, private P2pRequest {
 public:
  // limit: from the call to the deadline, which the first tick sets.
  MessageOperation(Messages& messages, const P2pCall& call, std::chrono::milliseconds limit)
      : P2pRequest(call), limit_(limit), messages_(messages) {
    if (sends()) message = {peer, tag, bytes};
  }
  // Another message, of an operation that has ended and that nobody refers to any more.
  void renew(const P2pCall& call, std::chrono::milliseconds limit);
  const P2pCall& call() const { return *this; }
  const Message* moved_message() const override { return &message; }
  bool cancel() override;
  bool wait(Clock::time_point until) override;
  // "recv(4096 bytes from rank 1, tag 7)", for errors; peer in it is of the group.
  std::string text() const;
  bool background = false;     // no blocking call waits for it: it goes on while its rank does other things
  std::shared_ptr<Gate> gate;  // of a message in a stream, which submits it; it hears the end

  // Neighbors in the list of what has been submitted, or is under way.
  MessageOperation* next = nullptr;
  MessageOperation* previous = nullptr;

 private:
  friend class Messages;
  void complete(const Error* error) override { finish(error); }
  void finish(const Error* error);
  std::chrono::milliseconds limit_;
  Clock::time_point overdue_at_{};  // the first tick past its deadline, which has asked the members; zero: none has
  uint64_t began_at_ = 0;           // for the observer; 0: it was not on
  Messages& messages_;              // its flow, of which one on a stack has no share
};

// The sends and receives of one communicator; independent of its collectives.
class Messages final : public Flow, private P2pStreams {
 public:
  Messages(std::shared_ptr<CommunicatorContext> context, std::shared_ptr<Doorbell> bell, std::shared_ptr<Worker> worker,
           WaitPolicy policy);

  // Does not drive. Any thread; matched in the order of these calls.
  void submit(MessageOperation& operation);
  // submit() from a function in a stream. If the communicator has failed, the operation ends at once, since no thread
  // may make progress on it any more; else the thread that makes progress is woken.
  void submit_from_stream(MessageOperation& operation);
  // Waits for the operation at most until then; true if it is done. If that takes long, the other ranks learn of it
  // when they ask (a collective against a send), and the log says after two heartbeats, four, ... whom it waits for.
  bool wait_and_tell(const MessageOperation& operation, Clock::time_point until);
  void wait_blocking(const MessageOperation& operation) { wait_and_tell(operation, Clock::time_point::max()); }
  // Runs a call, or a send and then a receive at the same time, to their ends, on this thread. Returns what the last
  // one has moved; throws its failure, or that of the send, beside which the receive is taken back.
  Message run(std::span<const P2pCall> calls, std::chrono::milliseconds limit);
  // For submit().
  OperationRef<MessageOperation> make(const P2pCall& call, std::chrono::milliseconds limit);
  // Starts an asynchronous message, beside whatever is under way. None: it is over already, and `moved` says what
  // came; that took no lock, no memory, and woke nobody but the peer. Throws std::bad_alloc: nothing has happened.
  OperationRef<MessageOperation> start(const P2pCall& call, std::chrono::milliseconds limit, Message& moved);
  // Whether there is what the probe asks for, after a look at the streams; its operation's failure is thrown.
  std::optional<Message> look(const P2pCall& probe);

  // Why the communicator is over; nullptr: it is not. Any thread.
  const Error* failure() const { return context_->failure.get(); }
  // Messages are under way that no blocking call waits for: they may move on while the rank waits elsewhere.
  bool in_background() const { return state().submitted() || background_.load(std::memory_order_relaxed) > 0; }
  // Bytes that all of them have moved, both ways; grows while one comes on. Any thread.
  uint64_t moved_bytes() const { return moved_bytes_.load(std::memory_order_relaxed); }

  void peer_left(int peer);  // of the group. Any thread
  // Ends what is pending, tells the peers that nothing more comes, and writes until then what is still to be written.
  // True: nothing is left to be written.
  bool finish(Clock::time_point deadline);
  // Closes the streams.
  void shut_down();

 protected:
  bool step(Pass pass) override;
  void tick(Clock::time_point now) override;
  void interrupted() override { context_->interrupt(); }
  void broke(const Error& error) override { context_->fail(error); }

 private:
  friend class MessageOperation;
  std::unique_ptr<ByteStream> take_stream_to(int peer) override;
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from() override;
  // False: the action has thrown, and the communicator fails. Nothing passes it: operations may lie on the stack of the
  // thread that is here, or be those of other threads.
  template <typename Action>
  bool attempt(const Action& action) noexcept;
  bool move(Pass pass);
  bool end_late();
  bool take_submitted();
  bool begin(MessageOperation& operation);
  size_t at_once(std::span<const P2pCall> calls, int looks, Message& moved);
  Message run_operations(std::span<const P2pCall> calls, std::chrono::milliseconds limit);
  OperationRef<MessageOperation> used_again(const P2pCall& call, std::chrono::milliseconds limit);
  void forget(MessageOperation& operation);
  // Under the lease. Relaxed: nothing is handed over by it, and an exchange for each message is a tenth of its time.
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
  std::mutex submitted_mutex_;
  NodeList<MessageOperation> submitted_;
  std::vector<int> left_;           // submitted: one of the two is not empty
  std::atomic<int> background_{0};  // of active_; stored by the holder
  std::atomic<uint64_t> moved_bytes_{0};

  // Under the lease.
  std::unique_ptr<P2p> p2p_;
  NodeList<MessageOperation> active_;                 // counted; those without a deadline yet come last
  Clock::time_point due_ = Clock::time_point::max();  // no deadline of theirs is earlier
  // At most kMostKept operations that have ended, each with the flow's reference, for the asynchronous messages to
  // come: a Work may still refer to one.
  NodeList<MessageOperation> kept_;
  int kept_operations_ = 0;
  bool finishing_ = false;
  bool lingers_ = false;  // finish() has left something under way, which is counted
  bool ended_ = false;
};

}  // namespace rondo
