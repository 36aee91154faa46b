#pragma once

#include <ATen/core/ivalue.h>
#include <rondo/rondo.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "csrc/in_stream.h"
#include "csrc/locked.h"

namespace rondo_torch {

// What one call of torch needs until it has ended.
struct Call {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = nullptr;      // for torch's profiler, a literal
  std::vector<at::Tensor> outputs;  // what Work::result() and the future give
  std::function<void()> after;      // once the data is there: brings copies home. It holds the memory in use
  bool holds_host = false;          // wait() waits for the end also where tensors are on a GPU
};

// An operation of torch under way: one or several works of the library. Shared by the Work objects that refer to it,
// the future's completion and, while it has not ended, by nobody else: abandon() keeps it until its end. Any thread may
// use it. One thread, the first that finds all works ended, settles it: it brings copies home, frees the memory in use
// and completes the future. No lock is held meanwhile, and only wait() waits for that thread.
// On a GPU the copies home are in the stream, behind the library's calls, and wait() has the caller's current stream
// wait for them, not the host. What fails there is told by the next call of the group, or by a wait() after its end.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  Operation() = default;
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Before start(): adds a call, and what is called once when the operation has ended.
  void add(Call call);
  void set_end_callback(std::function<void()> callback) { end_callback_ = std::move(callback); }
  // From now on it can be waited for. `works`: those of the library, owned by this object from now on; in the stream
  // that this thread is in, if there is one.
  void start(std::vector<rondo_work_t> works);
  // Instead of start(): it has failed already.
  void start_failed(std::exception_ptr error);

  // Waits; throws the failure. timeout 0: without limit; else it throws after that time, and the operation goes on.
  // Without Python's lock.
  void wait(std::chrono::milliseconds timeout);
  // Whether it has succeeded or failed: nothing touches the tensors any more. Settles it if it is time, and never
  // waits.
  bool ended();
  // Null while it has not ended or has succeeded.
  std::exception_ptr error() const;
  // The sender of work `index`, a receive that has ended, which it waits for on a GPU; -1 if unknown.
  int source(size_t index);
  // After the end; on a GPU at once, in the order of the streams.
  std::vector<at::Tensor> outputs();
  c10::intrusive_ptr<c10::ivalue::Future> future();
  // Keeps the operation until it has ended.
  void abandon();

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  enum class State : uint8_t { kCollecting, kUnderWay, kSettling, kEnded };

  bool started() const { return state_.load(std::memory_order_acquire) != State::kCollecting; }
  bool has_ended() const { return state_.load(std::memory_order_acquire) == State::kEnded; }
  void wait_for_works(std::chrono::milliseconds timeout);
  void wait_in_stream(std::chrono::milliseconds timeout);
  void end_in(const c10::Stream& stream);
  void settle();
  void take_results();
  void settle_in_background();
  void complete_future();

  std::atomic<State> state_{State::kCollecting};
  std::vector<rondo_work_t> works_;  // constant from start() on
  std::vector<Call> calls_;          // constant from start() on; `after` is cleared by who settles
  std::optional<StreamEnd> end_;     // constant from start() on; std::nullopt: it is on the CPU
  std::function<void()> end_callback_;
  std::exception_ptr error_;  // this and the next: of who settles, constant once it has ended
  std::vector<int> sources_;
  Locked<Future> future_;  // null: nobody asked, or it has been completed
  std::atomic<bool> settles_in_background_{false};
};

// torch's handle of an operation.
class RondoWork : public c10d::Work {
 public:
  // index: of the library's work in the operation, for sourceRank().
  RondoWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
            std::shared_ptr<Operation> operation, uint64_t sequence_number, size_t index);
  ~RondoWork() override;

  bool isCompleted() override { return operation_->ended(); }
  bool isSuccess() const override { return operation_->ended() && operation_->error() == nullptr; }
  std::exception_ptr exception() const override { return operation_->error(); }
  int sourceRank() const override { return operation_->source(index_); }
  std::vector<at::Tensor> result() override { return operation_->outputs(); }
  void synchronize() override { operation_->wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return operation_->future(); }
  uint64_t getSequencenumber() const override { return sequence_number_; }

 private:
  std::shared_ptr<Operation> operation_;
  uint64_t sequence_number_;
  size_t index_;
};

}  // namespace rondo_torch
