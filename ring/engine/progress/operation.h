#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include "ring/base/caught.h"
#include "rondo/call.h"
#include "rondo/error.h"

namespace rondo {

class Flow;
class Worker;

using Clock = std::chrono::steady_clock;

// That long after `now`, or never if that is beyond what a clock can say.
inline Clock::time_point deadline_after(Clock::time_point now, std::chrono::milliseconds limit) {
  const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
  return limit < longest ? now + limit : Clock::time_point::max();
}

// A function of on_end() that is to be called. It has all memory that this needs: an operation may end for lack of it.
struct EndCall {
  EndFunction function;
  Error error = {};                      // of the operation that has ended
  std::shared_ptr<Flow> flow = nullptr;  // the operation's: fails if the function throws. Null: there is none
  EndCall* next = nullptr;

  // Throws what the function throws, if there is no flow.
  void run();
};

// One call under way: what a Work refers to. It ends once, by complete() or fail(), called by the holder of the lease
// of its flow; from then on nothing touches the caller's memory. The rest may be called by any thread.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation();

  bool done() const { return state_.load(std::memory_order_acquire) != State::kPending; }
  bool failed() const { return state_.load(std::memory_order_acquire) == State::kFailed; }
  // done(), after a pass over what is under way beside it if it is not. Any thread.
  virtual bool poll();
  // Waits at most until then; drives meanwhile. True if it is done. Throws Exception(kInvalid) if it has not been
  // submitted yet.
  virtual bool wait(Clock::time_point until);
  // What a send or receive has moved, once it has succeeded. nullptr: it is none.
  virtual const Message* moved_message() const { return nullptr; }
  // Requires failed().
  const Error& error() const { return error_; }
  // `function` is called once, by the worker's thread, when the operation has ended. Any thread. Throws
  // Exception(kInvalid) if it has not been submitted yet and in a forked child, kSystem if there is no such thread, and
  // none can be had.
  virtual void on_end(EndFunction function);
  // Work::cancel().
  virtual bool cancel() { return false; }
  // What is put into this stream from now on waits for the operation. Throws Exception(kInvalid) if it runs on none.
  virtual void wait_on(void* stream);

  void complete() { state_.store(State::kComplete, std::memory_order_release); }
  void fail(const Error& error) noexcept {
    keep_error(error, error_);
    state_.store(State::kFailed, std::memory_order_release);
  }

  // What drives it, so that a wait can; set before the operation is submitted.
  std::shared_ptr<Flow> flow;                             // shared: a Work may outlive its communicator
  Clock::time_point deadline = Clock::time_point::max();  // of the worker's RunningClock

  // After complete() or fail() of an operation that a Work may refer to: hands the functions to the worker.
  // Never blocks for long; the caller keeps the operation.
  void announce_end();

 protected:
  // It is pending again, though its end was announced: nobody refers to it.
  void renew() {
    if (failed()) error_ = {};
    state_.store(State::kPending, std::memory_order_relaxed);
    end_calls_.store(nullptr, std::memory_order_relaxed);
  }
  // What moves it, and fails where a function of on_end() throws.
  virtual std::shared_ptr<Flow> mover() const { return flow; }
  // What calls the functions; null: it was not submitted.
  virtual Worker* worker() const;
  // on_end() of an operation that has been submitted.
  void add_end_function(EndFunction function);
  // Throws Exception(kInvalid).
  [[noreturn]] static void refuse_unsubmitted(const char* what);

 private:
  enum class State : uint8_t { kPending, kComplete, kFailed };
  static EndCall kAnnounced;  // its address says so

  void call_by_worker(std::unique_ptr<EndCall> call);

  std::atomic<State> state_{State::kPending};
  Error error_;
  std::atomic<EndCall*> end_calls_{nullptr};  // newest first; &kAnnounced once the end has been announced
};

}  // namespace rondo
