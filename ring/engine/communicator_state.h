#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ring/engine/allocations.h"
#include "ring/engine/collective_calls.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/groups.h"
#include "ring/engine/lineage.h"
#include "ring/engine/message_calls.h"
#include "ring/engine/progress/worker.h"
#include "rondo/communicator.h"

namespace rondo {

class DeviceSide;

// Proof that the calling thread has no batch open. Calls that are made of several ones ask for it: they read
// the results of their exchanges, and a batch would keep these back. Only Batch makes it.
class OutsideBatch {
  friend class Batch;
  OutsideBatch() = default;
};

// One communicator of this rank: its calls, its memory, the communicators that its ranks make of it, and its
// end. The Communicator (ring/api) owns it; works share the parts that they need, and may outlive it.
//
// Two kinds of threads call it: the program's, and the fabric's I/O thread (CommunicatorEvents), which must not
// block. The constructor opens the communicator in the fabric, after which events come; destroy() closes it
// there, after which none comes any more.
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
  // How the worker's thread of such communicators waits.
  static WaitPolicy worker_policy(const Config& config, const Fabric& fabric);
  ~CommunicatorState() override;  // destroy()
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;

  // Says that this rank has the communicator. A failure from now on is one of its use (Stage::kUse): members
  // that still make it get it, and their first call throws.
  void made() { context_->fabric->made(context_->id); }

  int rank() const { return context_->rank; }
  int size() const { return context_->world(); }
  CommunicatorContext& context() const { return *context_; }

  CollectiveCalls& calls() { return calls_; }
  MessageCalls& message_calls() { return message_calls_; }
  Groups& groups() { return groups_; }
  const std::shared_ptr<Lineage>& lineage() const { return lineage_; }

  // Throws Exception(kInvalid) if the call has device memory and no stream. Costs a load while no call has used
  // a device.
  void check_on_host(const Call& call) const;
  void check_on_host(const char* call, const void* data) const;
  // Throws if destroy() was called, or if this is a forked child. A failed communicator passes: shrink() begins
  // with one.
  void check_not_destroyed() const {
    if (destroyed_.load() || !context_->mark.same_process()) context_->refuse_use();
  }
  // The stage in which the communicator failed, as the fabric said. kMaking before it has failed.
  Stage failed_in() const { return failed_in_.load(); }
  // The time of a deadline that is `timeout` from now, by the worker's clock. 0: the configured time.
  Clock::time_point deadline(std::chrono::milliseconds timeout) const;

  const std::shared_ptr<Worker>& worker() const { return worker_; }  // shared by all groups of the process
  // Starts the worker's thread, which moves operations that no thread waits on. It must come before the
  // submission of such an operation. Without a thread nobody would move it, so the communicator fails, which
  // this throws (kSystem).
  void ready_worker();

  // The memory of allocate(). Shared with the epochs before and after, so that buffers survive shrink() and
  // grow(). Throws Exception(kInvalid) in a forked child.
  const std::shared_ptr<Allocations>& allocations() const;
  // Gives memory of allocate() back, host or device.
  void deallocate(void* data);

  // The part that knows GPUs; made at the first call of this. Throws what check_usable() throws.
  DeviceSide& device();

  void abort(const std::string& reason);
  // abort() for signal handlers: one atomic store and one write to an eventfd. The fabric's thread does the
  // rest (on_wake).
  void abort_from_signal() noexcept;
  // Says goodbye to the members, waits for theirs at most until destroy_timeout_ms, ends what is pending, and
  // gives all memory back. Any thread; a second call waits for the first.
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
  // The device side; null: no call has used one, so calls on host memory need not ask it.
  DeviceSide* attached() const { return device_.load(std::memory_order_acquire); }
  CallState state_at(uint64_t sequence) const;
  void abort_with(const Error& error);  // its ranks are those of the world
  void end_for_shrink() const;
  // destroy() and try_destroy(): the first half fails the communicator with kClosed, so no call begins any
  // more; the second half closes it, after what was sent has gone.
  void begin_to_leave();
  void end_leaving();

  const std::shared_ptr<CommunicatorContext> context_;  // shared with the two flows
  const std::shared_ptr<Worker> worker_;          // shared by all groups of the process, the last of which ends it
  const Error signal_abort_;                      // of abort_from_signal()
  std::atomic<bool> signal_abort_told_{false};    // to the others, by on_wake()
  std::atomic<Stage> failed_in_{Stage::kMaking};  // of the failure, if it came by the fabric

  const std::shared_ptr<Allocations> allocations_;  // shared with the epochs before and after
  const std::shared_ptr<Lineage> lineage_;          // likewise
  CollectiveCalls calls_;
  MessageCalls message_calls_;
  Groups groups_{*this};

  std::mutex device_mutex_;
  std::unique_ptr<DeviceSide> device_owner_;  // under device_mutex_; device_ is for threads without it
  std::atomic<DeviceSide*> device_{nullptr};

  // One thread at a time leaves, with no lock held: its waits call the program's function.
  class LeavingTurn;
  std::mutex leaver_mutex_;
  std::condition_variable leaver_gone_;
  std::thread::id leaver_;              // under leaver_mutex_; none: nobody leaves
  std::atomic<bool> destroyed_{false};  // leaving has begun; the rest is the leaver's
  bool left_ = false;                   // it is over
  uint64_t last_finished_ = 0;          // calls, when it began
  Clock::time_point leave_by_{};
};

}  // namespace rondo
