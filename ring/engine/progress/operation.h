#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ring/base/caught.h"
#include "ring/engine/progress/operation_ref.h"
#include "rondo/call.h"
#include "rondo/error.h"

namespace rondo {

class Flow;

using Clock = std::chrono::steady_clock;

// The deadline of an operation whose flow has not looked at the clock yet. The first look sets it. A short call
// ends before that, and costs no clock read.
inline constexpr Clock::time_point kNoDeadlineYet{};

// The time that is `limit` after `now`; the end of time, if that is beyond what a clock can say.
inline Clock::time_point deadline_after(Clock::time_point now, std::chrono::milliseconds limit) {
  const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
  return limit < longest ? now + limit : Clock::time_point::max();
}

// A function of on_end() with all memory that calling it needs. It is allocated when the function is added: an
// operation may end because memory has run out.
struct EndCall {
  EndFunction function;
  Error error = {};                      // of the operation that has ended
  std::shared_ptr<Flow> flow = nullptr;  // the operation's: fails if the function throws
  EndCall* next = nullptr;

  void run() noexcept;
};

// One call under way: what a Work refers to. Its flow moves it. end() is called once, by the holder of the
// flow's lease; from then on nothing touches the caller's memory. Any thread may call the rest.
//
// It lies on the stack of a blocking call, or counts its references: its flow has one from the submission to
// the end, and each Work has one. An operation on a stack has no references and no functions of on_end().
//
// The order at the end: the error is written, then the state is stored with release. A thread whose done()
// loads the state with acquire sees the error and the result.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation();

  // Makes an operation of a derived class, with one reference, the caller's.
  template <typename T, typename... Arguments>
  static OperationRef<T> make(Arguments&&... arguments) {
    auto* const made = new T(std::forward<Arguments>(arguments)...);
    made->references_.store(1, std::memory_order_relaxed);
    return OperationRef<T>::take(made);
  }
  bool on_stack() const { return references_.load(std::memory_order_relaxed) == 0; }
  void retain(uint32_t count = 1) { references_.fetch_add(count, std::memory_order_relaxed); }
  // retain() where the caller has the only reference. No other thread can change the count then, so a plain
  // store does; an exchange takes as long as 20 instructions.
  void retain_alone() { references_.store(2, std::memory_order_relaxed); }
  // acq_rel: the thread that deletes sees what the threads before it did with the operation.
  void release(uint32_t count = 1) noexcept {
    if (references_.fetch_sub(count, std::memory_order_acq_rel) == count) delete this;
  }

  bool done() const { return state() >= State::kComplete; }
  bool failed() const { return state() == State::kFailed; }
  // done(), after a pass over its flow and the others under way if it is not done. Never waits. Any thread.
  virtual bool poll();
  // Waits at most until then, and moves what is under way meanwhile. True if it is done. Throws
  // Exception(kInvalid) if it has not been submitted yet: a call of an open batch would never end.
  virtual bool wait(Clock::time_point until);
  // The message that a send or receive has moved, once it has succeeded. nullptr: this is no message.
  virtual const Message* moved_message() const { return nullptr; }
  // Requires failed().
  const Error& error() const { return *error_; }
  // `function` is called once, by the worker's thread, after the operation has ended; at once if it has ended
  // already. Any thread. Throws Exception(kInvalid) before the submission and in a forked child. Throws kSystem
  // if the worker has no thread and none can be started.
  virtual void on_end(EndFunction function);
  // Work::cancel().
  virtual bool cancel() { return false; }
  // Work that is put into this stream from now on runs after the operation. Throws Exception(kInvalid) if the
  // operation runs on no stream.
  virtual void wait_on(void* stream);

  // error: why it has failed; nullptr: it has succeeded. Hands the functions of on_end() to the worker. An
  // operation on a stack may be gone when the state is stored: the waiting thread returns. Never blocks for
  // long.
  void end(const Error* error) noexcept;

  // The flow that moves it: a wait needs it, and it fails if a function of on_end() throws. Null for an
  // operation on a stack.
  std::shared_ptr<Flow> flow;                             // shared: a Work may outlive its communicator
  Clock::time_point deadline = Clock::time_point::max();  // in the time of Worker::clock()

 protected:
  enum class State : uint8_t {
    kMade,
    kQueued,   // submitted
    kRunning,  // its flow has begun it
    kComplete,
    kFailed,
  };
  State state() const { return state_.load(std::memory_order_acquire); }
  // Sets a state before the end. By the thread that submits it, then by the holder of the lease. Relaxed: the
  // queue's lock or the lease hands the operation over.
  void become(State state) { state_.store(state, std::memory_order_relaxed); }
  // Makes an operation that has ended new, so that its memory serves the next call. Requires unshared().
  void renew() {
    error_.reset();
    become(State::kMade);
    end_calls_.store(nullptr, std::memory_order_relaxed);
  }
  // The caller has the only reference to an operation that has ended. Acquire pairs with release(): what other
  // threads did with it is over.
  bool unshared() const { return references_.load(std::memory_order_acquire) == 1; }
  // on_end() of an operation that has been submitted.
  void add_end_function(EndFunction function);
  // Throws Exception(kInvalid) if it has not been.
  void check_submitted(const char* what) const {
    if (state() == State::kMade) refuse_unsubmitted(what);
  }

 private:
  static EndCall kAnnounced;  // a mark, never called: see end_calls_

  [[noreturn]] static void refuse_unsubmitted(const char* what);
  void announce_end();
  void call_by_worker(std::unique_ptr<EndCall> call);

  std::atomic<State> state_{State::kMade};
  std::atomic<uint32_t> references_{0};  // 0: it lies on a stack
  std::optional<Error> error_;
  std::atomic<EndCall*> end_calls_{nullptr};  // newest first; &kAnnounced once the end has been announced
};

}  // namespace rondo
