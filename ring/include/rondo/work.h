#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <rondo/call.h>
#include <rondo/error.h>
#include <rondo/export.h>

namespace rondo {

class Operation;  // what a Work refers to; internal

// A handle to an asynchronous operation. Copies refer to the same operation. Destroying the last copy does not end the
// operation: it goes on, and its buffers must stay valid until it has ended. On an empty Work only valid() is allowed;
// the rest throws kInvalid. Any thread.
class RONDO_EXPORT Work {
 public:
  Work() = default;  // empty
  // Internal: takes over a reference. over: what a message has moved that was over when its call returned.
  explicit Work(Operation* operation, const Message& over = {}) : operation_(operation), message_(over) {}
  Work(const Work&);
  Work(Work&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)), message_(other.message_) {}
  Work& operator=(Work other) noexcept {
    std::swap(operation_, other.operation_);
    std::swap(message_, other.message_);
    return *this;
  }
  ~Work();

  bool valid() const { return operation_ != nullptr; }
  // True once the operation has succeeded or failed. From then on the library does not touch its buffers. Until then
  // each call makes progress on what is under way, as wait() does.
  bool done() const;
  // Waits for at most `timeout`, and makes progress on the operation meanwhile. True: it succeeded. False: the wait ran
  // out, which is no failure; the operation goes on. Throws Exception if the operation failed.
  bool wait(std::chrono::nanoseconds timeout);
  // Waits until the operation succeeds, or throws its failure (at the latest kTimeout at its own deadline).
  void wait();
  // What the program puts into this stream (a cudaStream_t) from now on runs after the operation. Of calls with
  // CallOptions::stream, else kInvalid is thrown. Returns at once.
  void wait_on(void* stream);
  // Takes back a receive that no message has met, or a probe: it ends with kCancelled, and this returns true. Anything
  // else goes on, or has ended: false.
  bool cancel();
  // The failure; nullopt before the end and after success.
  std::optional<Error> error() const;

  // `function` is called once when the operation has succeeded or failed; if it has already, it is called soon. Each
  // call of this adds a function; they are called in this order, on a thread of the library, with no lock held, also
  // after the last Work is gone. The function may start calls (_async). It must not throw, and must not wait: a
  // blocking call, wait() of an operation under way, and destroy() throw kInvalid there. Other operations that no
  // thread waits for stand still while it runs. destroy() returns after all functions of the communicator's operations.
  void on_end(EndFunction function);

  // Throws kInvalid unless this is a send, a receive or a probe that has succeeded, or a receive that was truncated.
  Message message() const;

 private:
  Operation* operation_ = nullptr;  // counts the Works that refer to it
  Message message_;                 // of a message that was over at once: its peer is not -1
};

// For several works, in any order; empty ones do not count.
// Waits until all of them have ended, and then throws the first failure in the list. False: the wait ran out.
RONDO_EXPORT bool wait_all(std::span<Work> works, std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
// Waits until one of them has ended, well or not, and returns its place in the list: its wait() throws its failure.
// works.size(): the wait ran out, or all are empty. kInterrupted (interrupt.h) ends this wait and nothing else.
RONDO_EXPORT size_t wait_any(std::span<Work> works, std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

}  // namespace rondo
