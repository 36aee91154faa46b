#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ring/engine/allocations.h"
#include "ring/engine/collective/collectives.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/groups.h"
#include "ring/engine/lineage.h"
#include "ring/engine/message/messages.h"
#include "ring/engine/progress/worker.h"
#include "ring/engine/route/prepared_call.h"
#include "ring/engine/tensor_lists.h"
#include "rondo/communicator.h"

namespace rondo {

class DeviceSide;

// Shows that the calling thread has no batch open. Calls that are made of several ones need it: they read what their
// exchanges bring, and a batch would keep these. Batch alone makes it.
class OutsideBatch {
  friend class Batch;
  OutsideBatch() = default;
};

// One communicator: checks the arguments, picks the plan, submits, hands back operations; and hears from the fabric.
class CommunicatorState final : public CommunicatorEvents, public std::enable_shared_from_this<CommunicatorState> {
 public:
  struct Options {
    std::shared_ptr<Fabric> fabric;  // shared by all groups of the process
    uint64_t id = 0;
    uint64_t epoch = 0;
    std::vector<int> members;  // world ranks
    Config config;
    std::shared_ptr<Worker> worker;                   // shared by all groups of the process
    std::shared_ptr<Observer> observer;               // likewise
    std::vector<int> observed_ranks = {};             // CommunicatorContext's
    std::optional<ForkMark> mark = {};                // likewise; none: a new one
    std::shared_ptr<Allocations> allocations = {};    // of the epoch before, shared with it; null: new ones
    std::shared_ptr<Allocations> memory_before = {};  // of new ones
    std::shared_ptr<Lineage> lineage = {};            // shared with its epochs before; null: a new one, made of none
  };
  explicit CommunicatorState(Options options);
  // How the thread of such groups' worker waits.
  static WaitPolicy worker_policy(const Config& config, const Fabric& fabric);
  ~CommunicatorState() override;  // destroy()
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;

  // Exchanges a frame with both ring neighbors on every lane. Throws what went wrong, but for what a member has met
  // that has it already: this rank's first call throws that.
  void meet_neighbors(Purpose by, Clock::time_point deadline);
  // The same, left to the worker; made() follows.
  OperationRef<Operation> start_opening(Purpose by);
  // The end of its making, before its user has it.
  void made() { context_->fabric->made(context_->id); }

  int rank() const { return context_->rank; }
  int size() const { return context_->world(); }
  const CommunicatorContext& context() const { return *context_; }
  Algorithm algorithm_for(const Call& call, bool registered) const;

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
    with_memory([&] { all.resize(static_cast<size_t>(size())); });
    gather(&own, all.data(), sizeof(Record), purpose, timeout);
    return all;
  }

  // Messages. run(): on the calling thread; of two, both at once; what the last one has moved. start(): in the
  // background, unless it is over when this returns.
  Message run(const MessageCall& call);
  Message run(const MessageCall& send, const MessageCall& receive);
  Work start(const MessageCall& call);
  std::optional<Message> look(const MessageCall& probe);
  // check_usable(), then check_message().
  P2pCall checked(const MessageCall& call) const;
  // Checks it; submit() starts it.
  OperationRef<MessageOperation> make(const MessageCall& call) const;
  // Whether the calling thread does nothing else until the message has gone.
  enum class Waited { kByCaller, kInBackground };
  void submit(MessageOperation& operation, Waited waited);
  // Throws what stands against any call now: a fork, the communicator's failure.
  void check_usable() const {
    if (!context_->mark.same_process() || context_->failure.get() != nullptr) refuse_use();
  }
  // Throws Exception(kInvalid) for device memory in a call without a stream, once the communicator is attached.
  void check_on_host(const Call& call) const;
  // destroy() was called, or this is a forked child.
  void check_not_destroyed() const {
    if (destroyed_.load() || !context_->mark.same_process()) refuse_use();
  }
  // When it failed, by the fabric's word.
  Stage failed_in() const { return failed_in_.load(); }
  // The configured one for 0.
  std::chrono::milliseconds limit_of(std::chrono::milliseconds timeout) const;
  Clock::time_point deadline(std::chrono::milliseconds timeout) const;
  // Waits for it; the others are told if that takes long.
  void await(const MessageOperation& operation) { messages_->wait_blocking(operation); }
  // The worker's thread goes on with operations that no thread waits for, after Flow::notify(). ready_worker() must
  // have come before whatever that is was submitted: without a thread nobody could go on with it, so that the
  // communicator fails, which it throws (kSystem).
  void ready_worker();
  const std::shared_ptr<Messages>& messages() const { return messages_; }
  const std::shared_ptr<Collectives>& collectives() const { return collectives_; }
  Worker& worker() const { return *worker_; }
  // CommunicatorContext::fail(): afterwards check_usable() throws.
  void fail(const Error& error) { context_->fail(error); }
  // Runs a part of a call that the other ranks make, too: where it throws std::bad_alloc, the communicator fails.
  template <typename Action>
  auto with_memory(Action action) {
    try {
      return action();
    } catch (const std::bad_alloc&) {
      fail_for_memory();
    }
  }

  TensorLists& lists() { return lists_; }
  Allocations& allocations();
  // For the communicator that it grows to, which keeps what is there; null: nothing.
  std::shared_ptr<Allocations> memory_for_next() const { return allocations_->empty() ? nullptr : allocations_; }
  // Memory of allocate(), host or device.
  void deallocate(void* data);
  // Collectives::set_streams().
  void set_streams(Collectives::LetGo let_go) { collectives_->set_streams(std::move(let_go)); }

  // The side of it that knows GPUs; made at the first call of this.
  DeviceSide& device();
  void attach_device(OutsideBatch);
  void* allocate_on_device(OutsideBatch, size_t bytes);

  Groups& groups() { return groups_; }
  const std::shared_ptr<Lineage>& lineage() const { return lineage_; }
  const std::shared_ptr<Allocations>& shared_allocations() const { return allocations_; }
  const std::shared_ptr<Worker>& shared_worker() const { return worker_; }  // of all groups of the process

  void abort(const std::string& reason);
  // abort() for signal handlers: one atomic store and a write to an eventfd, by which the fabric's thread does the
  // rest.
  void abort_from_signal() noexcept;
  void destroy();
  // Communicator::try_destroy().
  bool try_destroy();

  // --- CommunicatorEvents
  void on_failure(const Error& error, Stage stage) override;
  void on_peer_left(int peer, uint64_t last_sequence) override;
  CallState call_state(uint64_t sequence) override;
  std::string waits_in() override;
  std::string status_json(const AskWhom& whom) override;
  std::string metrics_text() override;
  void on_wake() override;
  void on_broken() noexcept override;

 private:
  // What equal calls have in common, kept.
  std::shared_ptr<PreparedCall> prepare(const CheckedCall& call);
  std::shared_ptr<PreparedCall> prepare(const Call& call);
  OperationRef<CollectiveOperation> make(std::shared_ptr<PreparedCall> call, const CallBuffers& buffers) const;
  OperationRef<CollectiveOperation> submit_recoverable(const Call& call);
  void gather(const void* own, void* all, size_t bytes, Purpose purpose, std::chrono::milliseconds timeout);
  // The device side, if calls on host memory must ask it.
  DeviceSide* attached() const { return device_.load(std::memory_order_acquire); }
  [[noreturn]] void refuse_use() const;
  [[noreturn]] void fail_for_memory();
  P2pCall checked_on_host(const MessageCall& call) const;
  CallState state_at(uint64_t sequence) const;
  void end_for_shrink() const;
  void begin_to_leave();
  void end_leaving();

  std::shared_ptr<CommunicatorContext> context_;  // shared with the two engines
  std::shared_ptr<Worker> worker_;                // shared by all groups of the process, the last of which ends it
  std::shared_ptr<Collectives> collectives_;      // shared with Works, which may outlive the group
  std::shared_ptr<Messages> messages_;            // likewise
  OperationRef<Operation> over_;                  // stands for every message that was over when its call returned
  const int pid_;                                 // for messages
  const Error signal_abort_;                      // of abort_from_signal()
  std::atomic<bool> signal_abort_told_{false};

  std::atomic<Stage> failed_in_{Stage::kMaking};  // of the failure, if it came by the fabric

  std::mutex submit_mutex_;  // calls are serialized in the order in which they get it
  PreparedCalls prepared_;

  const std::shared_ptr<Allocations> allocations_;  // shared with the epochs before and after
  const std::shared_ptr<Lineage> lineage_;          // likewise
  TensorLists lists_{*this};
  Groups groups_{*this};

  std::mutex device_mutex_;
  std::unique_ptr<DeviceSide> device_owner_;
  std::atomic<DeviceSide*> device_{nullptr};

  // new_group_async(): who leaves before it is over ends it for the others, too.
  OperationRef<CollectiveOperation> opening_;
  std::mutex destroy_mutex_;
  std::atomic<bool> destroyed_{false};  // it has begun; the rest under destroy_mutex_
  bool left_ = false;                   // it is over
  uint64_t last_finished_ = 0;          // calls, when it began
  Clock::time_point leave_by_{};
};

}  // namespace rondo
