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

// The deadline of an operation until its flow first looks at the clock: what is over soon costs no clock read.
inline constexpr Clock::time_point kNoDeadlineYet{};

// That long after `now`, or never if that is beyond what a clock can say.
inline Clock::time_point deadline_after(Clock::time_point now, std::chrono::milliseconds limit) {
  const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
  return limit < longest ? now + limit : Clock::time_point::max();
}

// A function of on_end() that is to be called. It has all memory that this needs: an operation may end for lack of it.
struct EndCall {
  EndFunction function;
  Error error = {};                      // of the operation that has ended
  std::shared_ptr<Flow> flow = nullptr;  // the operation's: fails if the function throws
  EndCall* next = nullptr;

  void run() noexcept;
};

// One call under way: what a Work refers to. It ends once, by end(), called by the holder of the lease of its flow;
// from then on nothing touches the caller's memory. The rest may be called by any thread.
//
// It lies on the stack of a blocking call, or counts its references: the flow has one from its submission to its end,
// each Work has one.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation();

  // With one reference, the caller's. Of a class derived from this one.
  template <typename T, typename... Arguments>
  static OperationRef<T> make(Arguments&&... arguments) {
    auto* const made = new T(std::forward<Arguments>(arguments)...);
    made->references_.store(1, std::memory_order_relaxed);
    return OperationRef<T>::take(made);
  }
  bool on_stack() const { return references_.load(std::memory_order_relaxed) == 0; }
  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  // The same where the caller has the only reference; without an exchange, which takes as long as 20 instructions.
  void retain_alone() { references_.store(2, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  bool done() const { return state() >= State::kComplete; }
  bool failed() const { return state() == State::kFailed; }
  // done(), after a pass over what is under way beside it if it is not. Any thread.
  virtual bool poll();
  // Waits at most until then; drives meanwhile. True if it is done. Throws Exception(kInvalid) if it has not been
  // submitted yet.
  virtual bool wait(Clock::time_point until);
  // What a send or receive has moved, once it has succeeded. nullptr: it is none.
  virtual const Message* moved_message() const { return nullptr; }
  // Requires failed().
  const Error& error() const { return *error_; }
  // `function` is called once, by the worker's thread, when the operation has ended. Any thread. Throws
  // Exception(kInvalid) if it has not been submitted yet and in a forked child, kSystem if there is no such thread, and
  // none can be had.
  virtual void on_end(EndFunction function);
  // Work::cancel().
  virtual bool cancel() { return false; }
  // What is put into this stream from now on waits for the operation. Throws Exception(kInvalid) if it runs on none.
  virtual void wait_on(void* stream);

  // error: why it has failed; nullptr: it has succeeded. Hands its functions to the worker. From then on an operation
  // on a stack may be gone. Never blocks for long.
  void end(const Error* error) noexcept;

  // What drives it, so that a wait can, and fails where a function of on_end() throws; null: it lies on a stack.
  std::shared_ptr<Flow> flow;                             // shared: a Work may outlive its communicator
  Clock::time_point deadline = Clock::time_point::max();  // of the worker's RunningClock

 protected:
  enum class State : uint8_t {
    kMade,
    kQueued,   // submitted
    kRunning,  // its flow has begun it
    kComplete,
    kFailed,
  };
  State state() const { return state_.load(std::memory_order_acquire); }
  // Before its end; by who submits it, then by the holder of the lease.
  void become(State state) { state_.store(state, std::memory_order_relaxed); }
  // It is as made, though it has ended: nobody else refers to it.
  void renew() {
    error_.reset();
    become(State::kMade);
    end_calls_.store(nullptr, std::memory_order_relaxed);
  }
  // True: the caller has the only reference to an operation that has ended, and sees what others did with it.
  bool unshared() const { return references_.load(std::memory_order_acquire) == 1; }
  // on_end() of an operation that has been submitted.
  void add_end_function(EndFunction function);
  // Throws Exception(kInvalid) if it has not been.
  void check_submitted(const char* what) const {
    if (state() == State::kMade) refuse_unsubmitted(what);
  }

 private:
  static EndCall kAnnounced;  // its address says so

  [[noreturn]] static void refuse_unsubmitted(const char* what);
  void announce_end();
  void call_by_worker(std::unique_ptr<EndCall> call);

  std::atomic<State> state_{State::kMade};
  std::atomic<uint32_t> references_{0};  // 0: it lies on a stack
  std::optional<Error> error_;
  std::atomic<EndCall*> end_calls_{nullptr};  // newest first; &kAnnounced once the end has been announced
};

}  // namespace rondo
