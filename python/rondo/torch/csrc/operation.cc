#include "csrc/operation.h"

#include <c10/util/Exception.h>

#include <utility>

#include "csrc/background.h"
#include "csrc/errors.h"

namespace rondo_torch {

Operation::~Operation() {
  for (rondo_work_t work : works_) rondo_work_free(work);
}

void Operation::add(Call call) { calls_.push_back(std::move(call)); }

void Operation::start(std::vector<rondo_work_t> works) {
  works_ = std::move(works);
  sources_.assign(works_.size(), -1);
  started_.store(true, std::memory_order_release);
}

void Operation::start_failed(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  error_ = std::move(error);
  calls_.clear();
  started_.store(true, std::memory_order_release);
  ended_.store(true, std::memory_order_release);
}

void Operation::wait(std::chrono::milliseconds timeout) {
  TORCH_CHECK(
      started_.load(std::memory_order_acquire),
      "rondo: this call is part of a group of calls that has not been submitted yet; wait for the group's work");
  if (!ended_.load(std::memory_order_acquire)) {
    const auto begin = std::chrono::steady_clock::now();
    for (rondo_work_t work : works_) {
      int64_t left_ms = -1;
      if (timeout.count() > 0) {
        const auto used = std::chrono::steady_clock::now() - begin;
        left_ms = (timeout - std::chrono::duration_cast<std::chrono::milliseconds>(used)).count();
        if (left_ms < 0) left_ms = 0;
      }
      if (rondo_wait(work, left_ms) == RONDO_IN_PROGRESS) {
        fail("the operation is still under way after " + std::to_string(timeout.count()) + " ms; it goes on");
      }
    }
    settle();
  }
  if (std::exception_ptr failed = error()) std::rethrow_exception(failed);
}

bool Operation::ended() {
  if (ended_.load(std::memory_order_acquire)) return true;
  if (!started_.load(std::memory_order_acquire)) return false;
  for (rondo_work_t work : works_) {
    int done = 0;
    check(rondo_test(work, &done));
    if (!done) return false;
  }
  settle();
  return true;
}

std::exception_ptr Operation::error() {
  std::lock_guard lock(mutex_);
  return error_;
}

int Operation::source(size_t index) {
  std::lock_guard lock(mutex_);
  return index < sources_.size() ? sources_[index] : -1;
}

std::vector<at::Tensor> Operation::outputs() {
  TORCH_CHECK(ended(), "rondo: the operation has not ended; wait for it first");
  std::vector<at::Tensor> all;
  for (const Call& call : calls_) all.insert(all.end(), call.outputs.begin(), call.outputs.end());
  return all;
}

// All works have ended: takes their results, once.
void Operation::settle() {
  // Without the lock: failure() may wait for Python.
  std::exception_ptr error;
  std::vector<int> sources(works_.size(), -1);
  for (size_t i = 0; i < works_.size(); ++i) {
    const rondo_result_t code = rondo_wait(works_[i], 0);
    rondo_message_t message;
    if (code != RONDO_OK && error == nullptr) error = failure(code);
    if (code == RONDO_OK && rondo_work_message(works_[i], &message) == RONDO_OK) sources[i] = message.peer;
  }
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    if (ended_.load(std::memory_order_relaxed)) return;
    error_ = error;
    sources_ = std::move(sources);
    for (Call& call : calls_) {
      try {
        if (error_ == nullptr && call.after) call.after();
      } catch (...) {
        error_ = std::current_exception();
      }
      call.after = nullptr;
    }
    callback = std::move(end_callback_);
    ended_.store(true, std::memory_order_release);
  }
  if (callback) callback();
  complete_future();
}

void Operation::complete_future() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::exception_ptr failed;
  {
    std::lock_guard lock(mutex_);
    future = std::exchange(future_, nullptr);
    failed = error_;
  }
  if (!future) return;
  if (failed) {
    future->setError(failed);
  } else {
    future->markCompleted(c10::IValue(outputs()));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::future() {
  TORCH_CHECK(started_.load(std::memory_order_acquire),
              "rondo: this call is part of a group of calls that has not been submitted yet; take the group's work");
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  {
    std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = future;
  }
  if (ended()) {
    complete_future();
  } else {
    settle_in_background();
  }
  return future;
}

void Operation::abandon() {
  if (started_.load(std::memory_order_acquire) && !ended()) settle_in_background();
}

// The library's threads must not run what torch does with a result: that goes to threads of this module.
void Operation::settle_in_background() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(settles_itself_, true)) return;
  }
  pending_works_.store(works_.size(), std::memory_order_relaxed);
  for (rondo_work_t work : works_) {
    auto* self = new std::shared_ptr<Operation>(shared_from_this());
    const rondo_result_t code = rondo_work_on_end(
        work,
        [](void* context, rondo_result_t) {
          std::unique_ptr<std::shared_ptr<Operation>> held(static_cast<std::shared_ptr<Operation>*>(context));
          if ((*held)->pending_works_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
          run_in_background([operation = std::move(*held)] { operation->settle(); });
        },
        self);
    if (code != RONDO_OK) {
      delete self;
      check(code);
    }
  }
}

void Operation::set_end_callback(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  end_callback_ = std::move(callback);
}

RondoWork::RondoWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                     std::shared_ptr<Operation> operation, uint64_t sequence_number, size_t index)
    : c10d::Work(rank, type, title, title == nullptr ? std::nullopt : std::make_optional(inputs)),
      operation_(std::move(operation)),
      sequence_number_(sequence_number),
      index_(index) {
  if (recordFunctionEndCallback_) operation_->set_end_callback(std::move(recordFunctionEndCallback_));
}

RondoWork::~RondoWork() {
  try {
    operation_->abandon();
  } catch (...) {
    // The library refused: the operation has failed, and nobody asks for it.
  }
}

bool RondoWork::wait(std::chrono::milliseconds timeout) {
  operation_->wait(timeout);
  return true;
}

void RondoWork::abort() { TORCH_CHECK(false, "rondo: one operation cannot be aborted; abort the process group"); }

}  // namespace rondo_torch
