#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/stream_call.h"
#include "rondo/communicator.h"

namespace rondo {

// Several operations as one: done when all parts are, failed with the first failure among them. No flow moves
// it: a thread that polls it looks at the parts, and the one that sees the last end ends it. `flow` is that of
// the collectives, for its worker and its process.
class BatchOperation final : public Operation {
 public:
  bool poll() override;
  bool wait(Clock::time_point until) override;
  void on_end(EndFunction function) override;
  void wait_on(void* stream) override;
  const Message* moved_message() const override { return pair_ ? parts_[1]->moved_message() : nullptr; }

 private:
  friend class Batch;
  void watch_parts();

  bool pair_ = false;                           // a send and a receive
  bool on_streams_ = false;                     // its parts are
  std::atomic<bool> watched_{false};            // the parts have functions of on_end() that poll this
  std::vector<OperationRef<Operation>> parts_;  // collectives, then messages; or calls on streams
  // Guards ended_ and ending_. Not held while a part is polled, nor while this ends: both may call poll().
  std::mutex mutex_;
  size_t ended_ = 0;     // the first so many parts are known to be done
  bool ending_ = false;  // a thread has seen the last one's end
};

// Calls of one communicator that are submitted together: lists of all_reduces, and batches, which collect calls
// between open() and end(). Consecutive all_reduces become as few operations as fusion.h says. On streams,
// those of one stream, operation, algorithm and timeout are one list. A batch puts its sends into streams first
// and its receives last: a stream must not wait for a message before this rank has sent its own.
//
// A batch collects the calls of the thread that opened it, and those of no other thread. Any thread may call
// abandon() and start_list(). The works of a batch that has not ended are for its own thread alone.
class Batch {
 public:
  explicit Batch(CommunicatorState& group) : group_(group) {}
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void open();
  // The calling thread has opened a batch. Costs a load and a comparison: every call asks.
  bool collecting() const {
    const void* const owner = owner_.load(std::memory_order_relaxed);
    return owner != nullptr && owner == this_thread();
  }
  // Throws Exception(kInvalid) if a batch of this thread is open: `call` needs results at once, and cannot be
  // collected.
  OutsideBatch outside(const char* call) const;

  // Checks the call and keeps it. What it returns is the operation of the whole batch. Throws Exception; then
  // the call is not kept, and the batch stays open. Without memory the communicator fails, since the other
  // ranks keep their call.
  OperationRef<Operation> add(const Call& call);
  OperationRef<Operation> add(std::span<const TensorRef> tensors, Op op, const CallOptions& options);
  // Keeps all of the messages, or none. Each has an operation of its own; returns the last one's.
  OperationRef<Operation> add(std::span<const MessageCall> messages);
  // Who moves what is submitted: the caller, by finish(); or the worker.
  enum class Left { kToCaller, kToWorker };

  // Submits what was kept, without moving it. Throws Exception if nothing was submitted. The batch is closed in
  // any case. The communicator has failed then, unless the error is kInvalid or kUnsupported, which all ranks
  // find alike.
  OperationRef<BatchOperation> end(Left left);
  // Closes the batch, if one is open, without submitting anything. Works of it fail with the error.
  void abandon(const Error& error);

  // A list by itself; does not drive.
  OperationRef<BatchOperation> start_list(std::span<const TensorRef> tensors, Op op, const CallOptions& options,
                                          Left left);

  // A send and a receive by themselves, for the worker.
  OperationRef<BatchOperation> start_pair(std::span<const MessageCall> pair);

  // Waits for it on this thread. Throws its failure.
  void finish(BatchOperation& operation);

 private:
  // The calls of a batch or list: collectives (items) and messages, each kind in the order of the calls.
  struct Calls {
    std::vector<BatchCall> items;
    std::vector<OperationRef<MessageOperation>> messages;
    std::vector<OperationRef<StreamCall>> streamed;  // messages on streams; then there are no others
    OperationRef<BatchOperation> operation;
    size_t size() const { return items.size() + messages.size() + streamed.size(); }
    bool on_stream() const { return !streamed.empty() || (!items.empty() && items.front().stream); }
  };

  // on_stream, more: of the calls that are added.
  void check_open(bool on_stream, size_t more = 1) const;
  // Throws as end() does.
  void submit(Calls calls, Left left);
  void enqueue(Calls calls);
  // The worker goes on with it.
  static void leave_to_worker(const BatchOperation& operation);
  void check(const Calls& calls) const;
  std::vector<OperationRef<Operation>> put(const Calls& calls) const;
  OperationRef<BatchOperation> make() const;
  void end(const Calls& calls, const Error& error);  // of what was not submitted
  [[noreturn]] void refuse_all(const Calls& calls);

  // The calling thread, while it lives; nullptr: it has opened no batch.
  static const void* this_thread();

  CommunicatorState& group_;
  std::atomic<const void*> owner_{nullptr};  // this_thread() of the open batch; nullptr: none is open
  std::weak_ptr<const char> owner_lives_;    // no later thread is at the owner's address as long as this is here
  std::mutex mutex_;                         // of owner_lives_, calls_ and opening and closing
  Calls calls_;
};

}  // namespace rondo
