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

// Shows that the calling thread has no batch open. Calls that are made of several ones need it: they read what their
// exchanges bring, and a batch would keep these. Batch alone makes it.
class OutsideBatch {
  friend class Batch;
  OutsideBatch() = default;
};

// One communicator: its calls, its memory, what its ranks make of it, and its end; it hears from the fabric.
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

  // The end of its making, before its user has it.
  void made() { context_->fabric->made(context_->id); }

  int rank() const { return context_->rank; }
  int size() const { return context_->world(); }
  CommunicatorContext& context() const { return *context_; }

  CollectiveCalls& calls() { return calls_; }
  MessageCalls& message_calls() { return message_calls_; }
  Groups& groups() { return groups_; }
  const std::shared_ptr<Lineage>& lineage() const { return lineage_; }

  // Throws Exception(kInvalid) for device memory in a call without a stream, once the communicator is attached.
  void check_on_host(const Call& call) const;
  void check_on_host(const char* call, const void* data) const;
  // destroy() was called, or this is a forked child.
  void check_not_destroyed() const {
    if (destroyed_.load() || !context_->mark.same_process()) context_->refuse_use();
  }
  // When it failed, by the fabric's word.
  Stage failed_in() const { return failed_in_.load(); }
  // timeout: 0: the configured one.
  Clock::time_point deadline(std::chrono::milliseconds timeout) const;

  const std::shared_ptr<Worker>& worker() const { return worker_; }  // shared by all groups of the process
  // The worker's thread goes on with operations that no thread waits for, after Flow::notify(). ready_worker() must
  // have come before whatever that is was submitted: without a thread nobody could go on with it, so that the
  // communicator fails, which it throws (kSystem).
  void ready_worker();

  // Memory of allocate(); shared with the epochs before and after. Throws Exception(kInvalid) in a forked child.
  const std::shared_ptr<Allocations>& allocations() const;
  // Memory of allocate(), host or device.
  void deallocate(void* data);

  // The side of it that knows GPUs; made at the first call of this, which throws what check_usable() does.
  DeviceSide& device();

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
  // The device side, if calls on host memory must ask it.
  DeviceSide* attached() const { return device_.load(std::memory_order_acquire); }
  CallState state_at(uint64_t sequence) const;
  void abort_with(const Error& error);  // its ranks are those of the world
  void end_for_shrink() const;
  void begin_to_leave();
  void end_leaving();

  const std::shared_ptr<CommunicatorContext> context_;  // shared with the two flows
  const std::shared_ptr<Worker> worker_;  // shared by all groups of the process, the last of which ends it
  const Error signal_abort_;              // of abort_from_signal()
  std::atomic<bool> signal_abort_told_{false};
  std::atomic<Stage> failed_in_{Stage::kMaking};  // of the failure, if it came by the fabric

  const std::shared_ptr<Allocations> allocations_;  // shared with the epochs before and after
  const std::shared_ptr<Lineage> lineage_;          // likewise
  CollectiveCalls calls_;
  MessageCalls message_calls_;
  Groups groups_{*this};

  std::mutex device_mutex_;
  std::unique_ptr<DeviceSide> device_owner_;
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
