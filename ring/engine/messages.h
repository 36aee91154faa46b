#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ring/engine/communicator_context.h"
#include "ring/engine/p2p/list.h"
#include "ring/engine/p2p/p2p.h"
#include "ring/engine/progress/progress_engine.h"

namespace rondo {

class Messages;

class MessageOperation;

// Hears how far a message is that is staged (device/stream_message.h). Under the lease.
class MessageStage {
 public:
  virtual ~MessageStage() = default;
  // The first `bytes` of a receive are there. Not called for the last part, whose end ended() tells.
  virtual void came(uint64_t bytes) = 0;
  // The operation has ended.
  virtual void ended(const MessageOperation& operation) = 0;
};

// A send or a receive as an operation. Fields of the request are set before it is submitted.
class MessageOperation : public Operation {
 public:
  virtual P2pRequest& request() = 0;
  // "recv(4096 bytes from rank 1, tag 7)", for messages; peer in it is of the group.
  virtual std::string text() const = 0;
  // True: it waits for a peer, so that nothing is to be written for it now.
  virtual bool start(P2p& p2p) = 0;
  std::chrono::milliseconds limit{0};  // from the call to the deadline, which the first tick sets
  uint64_t began_at = 0;               // for the observer; 0: it was not on
  bool background = false;  // no blocking call waits for it alone: it goes on while its rank does other things
  std::shared_ptr<MessageStage> stage;  // until it ends, which the stage waits for; null: it is not staged

  // Neighbors in the list of what is under way.
  MessageOperation* next = nullptr;
  MessageOperation* previous = nullptr;

 protected:
  friend class Messages;
  void end(const Error* error);
  Messages* messages_ = nullptr;
  std::shared_ptr<MessageOperation> self_;  // while it is under way
  bool on_stack_ = false;                   // of the blocking call, which destroys it once it is done: run()
  bool counted_ = false;                    // by ProgressEngine::added()
  bool listed_ = false;                     // in Messages::active_
};

class SendOperation final : public MessageOperation, private SendRequest {
 public:
  SendOperation(const std::byte* memory, uint64_t size, DType type, int to, int with_tag);
  P2pRequest& request() override { return *this; }
  std::string text() const override;
  bool start(P2p& p2p) override {
    p2p.send(*this);
    return false;
  }
  // ready_bytes: SendRequest::ready, which outlives the operation.
  void fill_by(const std::atomic<uint64_t>& ready_bytes) { ready = &ready_bytes; }

 private:
  void complete(const Error* error) override;
};

class RecvOperation final : public MessageOperation, private RecvRequest {
 public:
  RecvOperation(std::byte* memory, uint64_t size, DType type, int from, int with_tag);
  P2pRequest& request() override { return *this; }
  std::string text() const override;
  bool start(P2p& p2p) override { return p2p.recv(*this); }
  RecvRequest& recv() { return *this; }

 private:
  void progressed() override {
    if (stage) stage->came(RecvRequest::moved);
  }
  void complete(const Error* error) override;
};

// The sends and receives of one communicator; independent of its collectives.
class Messages final : public ProgressEngine, private P2pStreams {
 public:
  Messages(std::shared_ptr<CommunicatorContext> context, std::shared_ptr<Doorbell> bell,
           std::weak_ptr<ProgressThread> progress_thread, WaitPolicy policy);

  // Does not drive. Any thread; matched in the order of these calls.
  void submit(std::shared_ptr<MessageOperation> operation);
  // submit() from a function in a stream. If the communicator has failed, the operation ends at once, since no thread
  // may make progress on it any more; else the thread that makes progress is woken.
  void submit_from_stream(std::shared_ptr<MessageOperation> operation);
  // Waits for the operation; the others are told if that takes long (a collective against a send).
  void wait_blocking(const MessageOperation& operation);
  // The short way of a blocking call: what of the two (nullptr: none) ends within some 2 us, while nothing else is
  // under way. What does not has not begun: run() it.
  struct AtOnce {
    bool sent = false;
    bool received = false;
  };
  AtOnce run_at_once(const P2pOut* out, P2pIn* in);
  // Starts an asynchronous message, beside whatever is under way. nullptr: it is over already (in: what has come),
  // which took no lock, no memory, and woke nobody but the peer. Throws std::bad_alloc: nothing has happened.
  std::shared_ptr<MessageOperation> start(const P2pOut& out, std::chrono::milliseconds limit);
  std::shared_ptr<MessageOperation> start(P2pIn& in, std::chrono::milliseconds limit);
  // Stands for every message that was over at once; shared with their Works.
  std::shared_ptr<Operation> over() { return {shared_from_this(), &over_}; }
  // Runs a send, a receive or both (nullptr: none) to their ends, on this thread; they may lie on its stack. A receive
  // beside a send that fails is taken back.
  void run(SendOperation* send, RecvOperation* recv);

  // Why the communicator is over; nullptr: it is not. Any thread.
  const Error* failure() const { return context_->failure.get(); }
  // Messages are under way that a thread of the caller's, or the progress thread, may move on while the rank waits
  // elsewhere.
  bool in_background() const { return background_.load() > 0; }
  // Bytes that all of them have moved, both ways; grows while one comes on. Any thread.
  uint64_t moved_bytes() const { return moved_bytes_.load(std::memory_order_relaxed); }
  // Ends a receive that no message has met yet, with kAborted; on others it has no effect: their message is coming.
  void take_back(RecvOperation& operation);

  void peer_left(int peer);  // of the group. Any thread
  // Ends what is pending, tells the peers that nothing more comes, and writes until then what is still to be written.
  void finish(Clock::time_point deadline);
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
  template <typename Now, typename Make>
  std::shared_ptr<MessageOperation> start_or_submit(const Now& now, const Make& make);
  std::shared_ptr<MessageOperation> in_background(std::shared_ptr<MessageOperation> made,
                                                  std::chrono::milliseconds limit);
  void adopt(const std::shared_ptr<MessageOperation>& operation);
  bool take_now(P2pIn& in);
  void begin_now(MessageOperation* operation);
  void count_if_pending(MessageOperation* operation);
  void submit_on_stack(MessageOperation* operation);
  void submit_or_end(std::shared_ptr<MessageOperation> operation);
  void end_pending(const Error& error);
  void observe_end(const MessageOperation& operation, const Error* error, bool sends);
  void report();
  void time_out(const MessageOperation& operation);

  class Over final : public Operation {
   public:
    explicit Over(Messages& messages) : messages_(messages) {
      complete();
      announce_end();
    }

   private:
    std::shared_ptr<ProgressEngine> mover() const override { return messages_.shared_from_this(); }
    Messages& messages_;
  };

  std::shared_ptr<CommunicatorContext> context_;  // shared with the communicator and its collectives
  Over over_{*this};
  std::mutex submitted_mutex_;
  std::vector<std::shared_ptr<MessageOperation>> submitted_;
  std::vector<int> left_;
  std::atomic<bool> news_{false};  // one of the two is not empty
  std::atomic<int> background_{0};
  std::atomic<uint64_t> moved_bytes_{0};

  // Under the lease.
  std::unique_ptr<P2p> p2p_;
  std::vector<std::shared_ptr<MessageOperation>> taken_;  // scratch of take_submitted()
  NodeList<MessageOperation> active_;
  bool finishing_ = false;
  bool ended_ = false;
};

}  // namespace rondo
