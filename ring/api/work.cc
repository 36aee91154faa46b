#include "rondo/work.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "ring/base/interrupt.h"
#include "ring/engine/progress/end_functions.h"
#include "ring/engine/progress/first_end.h"
#include "ring/engine/progress/operation.h"

namespace rondo {

// Relaxed counting: the other Work keeps the operation alive meanwhile.
Work::Work(const Work& other) : operation_(other.operation_), message_(other.message_) {
  if (operation_ != nullptr) operation_->retain();
}

Work::~Work() {
  if (operation_ != nullptr) operation_->release();
}

namespace {

[[noreturn]] void refuse_empty() { throw Exception(ErrorCode::kInvalid, "this Work refers to no operation"); }

// An empty Work refers to nothing. Throws Exception(kInvalid) instead of following the null pointer.
inline Operation& checked(Operation* operation) {
  if (operation == nullptr) refuse_empty();
  return *operation;
}

// The end of time where the sum would overflow: nanoseconds::max() means for ever.
Clock::time_point time_after(std::chrono::nanoseconds timeout) {
  const auto now = Clock::now();
  return timeout > Clock::time_point::max() - now ? Clock::time_point::max() : now + timeout;
}

// How long wait_any() polls before it sleeps: a wake-up takes about 30 us (docs/tuning.md, "Waiting").
constexpr std::chrono::microseconds kPolled{200};

// The place of the first work that has ended; each look makes progress.
std::optional<size_t> find_ended(std::span<Work> works) {
  const auto ended = std::ranges::find_if(works, [](Work& work) { return work.valid() && work.done(); });
  if (ended == works.end()) return std::nullopt;
  return static_cast<size_t>(ended - works.begin());
}

// Each operation gets a function that rings this thread. The functions hold weak references, so an operation
// that ends after this wait finds nothing. The worker's thread moves the operations meanwhile.
void sleep_until_one_ends(std::span<Work> works, Clock::time_point until) {
  const auto first = std::make_shared<FirstEnd>();  // shared with the functions
  for (Work& work : works) {
    if (work.valid()) work.on_end(TellFirstEnd{first});
  }
  for (;;) {
    const auto wake = std::min(until, Clock::now() + kBetweenInterruptQuestions);
    if (first->wait(wake) || wake == until) return;
    if (!interrupt_requested()) continue;
    take_interruption();
    throw Exception(ErrorCode::kInterrupted, "wait_any() was interrupted by the program");
  }
}

}  // namespace

bool Work::done() const { return checked(operation_).poll(); }

// failed() is read after wait(): an acquire load of the state makes the error visible.
bool Work::wait(std::chrono::nanoseconds timeout) {
  Operation& operation = checked(operation_);
  if (!operation.done()) operation.wait(time_after(timeout));  // to ask for the time takes as long as a short message
  if (operation.failed()) throw Exception(operation.error());
  return operation.done();
}

// No deadline of its own: each operation has one, at which its flow ends it with kTimeout.
void Work::wait() {
  Operation& operation = checked(operation_);
  if (!operation.done()) operation.wait(Clock::time_point::max());
  if (operation.failed()) throw Exception(operation.error());
}

void Work::wait_on(void* stream) { checked(operation_).wait_on(stream); }

bool Work::cancel() { return checked(operation_).cancel(); }

std::optional<Error> Work::error() const {
  Operation& operation = checked(operation_);
  operation.poll();
  return operation.failed() ? std::optional<Error>(operation.error()) : std::nullopt;
}

void Work::on_end(EndFunction function) {
  Operation& operation = checked(operation_);
  if (!function) throw Exception(ErrorCode::kInvalid, "on_end() with an empty function");
  operation.on_end(std::move(function));
}

// message_ is set for a message that was over when its call returned; it has no operation of its own.
Message Work::message() const {
  const Operation& operation = checked(operation_);
  if (message_.peer >= 0) return message_;
  if (!operation.done() || (operation.failed() && operation.error().code != ErrorCode::kTruncated)) {
    throw Exception(ErrorCode::kInvalid, "message() of an operation that has not succeeded: wait for it first");
  }
  if (const Message* moved = operation.moved_message()) return *moved;
  throw Exception(ErrorCode::kInvalid, "message() of an operation that is no send and no receive");
}

// Waits for all of them, also after a failure: the caller's buffers are in use until each has ended.
bool wait_all(std::span<Work> works, std::chrono::nanoseconds timeout) {
  const auto until = time_after(timeout);
  std::optional<Exception> first;
  bool all = true;
  for (Work& work : works) {
    if (!work.valid()) continue;
    try {
      const auto left = until == Clock::time_point::max() ? std::chrono::nanoseconds::max() : until - Clock::now();
      all = work.wait(std::max(left, std::chrono::nanoseconds(0))) && all;
    } catch (const Exception& failure) {
      if (!first) first = failure;
    }
  }
  if (first && all) throw Exception(*first);
  return all;
}

// Polls first, since each find_ended() makes progress; then sleeps. The check for an end function comes after
// the first look: in such a function a work that has ended may be found.
size_t wait_any(std::span<Work> works, std::chrono::nanoseconds timeout) {
  if (std::ranges::none_of(works, &Work::valid)) return works.size();
  const auto until = time_after(timeout);
  const auto polled = Clock::now() + kPolled;
  for (;;) {
    if (const auto ended = find_ended(works)) return *ended;
    refuse_wait_in_end_function();
    const auto now = Clock::now();
    if (now >= until) return works.size();
    if (now < polled) {
      std::this_thread::yield();
    } else {
      sleep_until_one_ends(works, until);
    }
  }
}

}  // namespace rondo
