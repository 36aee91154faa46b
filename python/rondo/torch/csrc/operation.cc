#include "csrc/operation.h"

#include <c10/util/Exception.h>

#include <algorithm>
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
  if (const auto& stream = InStream::here()) end_in(*stream);
  state_.store(State::kUnderWay, std::memory_order_release);
}

// Behind the calls of the library.
void Operation::end_in(const c10::Stream& stream) {
  for (Call& call : calls_) {
    if (call.after) std::exchange(call.after, nullptr)();
  }
  end_.emplace(stream);
  if (end_callback_) std::exchange(end_callback_, nullptr)();
}

void Operation::start_failed(std::exception_ptr error) {
  error_ = std::move(error);
  calls_.clear();
  state_.store(State::kEnded, std::memory_order_release);
}

void Operation::wait(std::chrono::milliseconds timeout) {
  TORCH_CHECK(
      started(),
      "rondo: this call is part of a group of calls that has not been submitted yet; wait for the group's work");
  if (end_) {
    wait_in_stream(timeout);
  } else if (!has_ended()) {
    wait_for_works(timeout);
    settle();
    state_.wait(State::kSettling, std::memory_order_acquire);  // while another thread does
  }
  if (const std::exception_ptr failed = error()) raise(failed);
}

void Operation::wait_in_stream(std::chrono::milliseconds timeout) {
  const bool holds_host = std::any_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.holds_host; });
  if (timeout.count() > 0 || holds_host) wait_for_works(timeout);
  end_->hold_current_stream();
  ended();  // its failure, if it has ended by now
}

// The limit is of all works together.
void Operation::wait_for_works(std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  for (rondo_work_t work : works_) {
    int64_t left_ms = -1;
    if (timeout.count() > 0) {
      const auto used = std::chrono::steady_clock::now() - begin;
      left_ms = (timeout - std::chrono::duration_cast<std::chrono::milliseconds>(used)).count();
      if (left_ms < 0) left_ms = 0;
    }
    const rondo_result_t code = rondo_wait(work, left_ms);
    if (code == RONDO_IN_PROGRESS) {
      fail("the operation is still under way after " + std::to_string(timeout.count()) + " ms; it goes on");
    }
    // A wait that was refused, or interrupted as its time was over: the operation is under way, and needs its memory.
    int done = 0;
    if (code != RONDO_OK && (rondo_test(work, &done) != RONDO_OK || done == 0)) check(code);
  }
}

bool Operation::ended() {
  if (has_ended()) return true;
  if (!started()) return false;
  for (rondo_work_t work : works_) {
    int done = 0;
    check(rondo_test(work, &done));
    if (!done) return false;
  }
  if (end_ && !end_->passed()) return false;
  settle();
  return has_ended();
}

std::exception_ptr Operation::error() const { return has_ended() ? error_ : nullptr; }

int Operation::source(size_t index) {
  if (end_ && !has_ended()) {
    wait_for_works(kNoTimeout);
    rondo_message_t message;
    return index < works_.size() && rondo_work_message(works_[index], &message) == RONDO_OK ? message.peer : -1;
  }
  return has_ended() && index < sources_.size() ? sources_[index] : -1;
}

std::vector<at::Tensor> Operation::outputs() {
  TORCH_CHECK(end_ || ended(), "rondo: the operation has not ended; wait for it first");
  std::vector<at::Tensor> all;
  for (const Call& call : calls_) all.insert(all.end(), call.outputs.begin(), call.outputs.end());
  return all;
}

// All works have ended. Does nothing where another thread settles it or has done so.
void Operation::settle() {
  State expected = State::kUnderWay;
  if (!state_.compare_exchange_strong(expected, State::kSettling, std::memory_order_acquire)) return;
  try {
    take_results();
  } catch (...) {
    error_ = std::current_exception();
  }
  for (Call& call : calls_) call.after = nullptr;
  state_.store(State::kEnded, std::memory_order_release);
  state_.notify_all();
  if (end_callback_) std::exchange(end_callback_, nullptr)();
  complete_future();
}

// Copies go home only where all works succeeded: a call of a recoverable group that fails leaves its tensors as they
// were.
void Operation::take_results() {
  sources_.assign(works_.size(), -1);
  for (size_t i = 0; i < works_.size(); ++i) {
    const rondo_result_t code = rondo_wait(works_[i], 0);
    rondo_message_t message;
    if (code != RONDO_OK && error_ == nullptr) error_ = failure(code);
    if (code == RONDO_OK && rondo_work_message(works_[i], &message) == RONDO_OK) sources_[i] = message.peer;
  }
  for (Call& call : calls_) {
    if (error_ == nullptr && call.after) call.after();
  }
}

// After the end. Who takes the future from its place completes it.
void Operation::complete_future() {
  const Future future = future_.with([](Future& kept) { return std::exchange(kept, Future()); });
  if (!future) return;
  if (error_) {
    future->setError(error_);
  } else {
    future->markCompleted(c10::IValue(outputs()));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::future() {
  TORCH_CHECK(started(),
              "rondo: this call is part of a group of calls that has not been submitted yet; take the group's work");
  const auto type = c10::ListType::create(c10::TensorType::get());
  if (end_) {  // complete in the order of the stream
    const auto made = c10::make_intrusive<c10::ivalue::Future>(type, std::vector<c10::Device>{end_->stream().device()});
    const c10::StreamGuard guard(end_->stream());
    made->markCompleted(c10::IValue(outputs()));
    return made;
  }
  const auto made = c10::make_intrusive<c10::ivalue::Future>(type);
  const Future future = future_.with([&](Future& kept) {
    if (!kept) kept = made;
    return kept;
  });
  if (ended()) {
    complete_future();
  } else {
    settle_in_background();
  }
  return future;
}

void Operation::abandon() {
  if (!end_ && started() && !ended()) settle_in_background();
}

// The library's threads must not run what torch does with a result: that goes to threads of this module.
void Operation::settle_in_background() {
  if (settles_in_background_.exchange(true)) return;
  struct Left {  // of the works, those that have not ended; their ends share it, and the last frees it
    std::shared_ptr<Operation> operation;
    std::atomic<size_t> works;
  };
  auto* left = new Left{shared_from_this(), works_.size()};
  for (rondo_work_t work : works_) {
    const auto end = [](void* context, rondo_result_t) {
      auto* left = static_cast<Left*>(context);
      if (left->works.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      const std::unique_ptr<Left> last(left);
      run_in_background([operation = std::move(last->operation)] { operation->settle(); });
    };
    check(rondo_work_on_end(work, end, left));  // where it throws the operation stays for ever: its memory is in use
  }
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
