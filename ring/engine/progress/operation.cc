#include "ring/engine/progress/operation.h"

#include <string>
#include <utility>

#include "ring/engine/progress/first_end.h"
#include "ring/engine/progress/flow.h"
#include "ring/engine/progress/worker.h"

namespace rondo {
namespace {

// Whether the function belongs to a wait_any() that has returned: nobody hears it any more.
bool wait_over(const EndCall& call) {
  const auto* const tells = call.function.target<TellFirstEnd>();
  return tells != nullptr && tells->first.expired();
}

// `calls` without those whose waits are over, which are deleted, followed by `behind`.
EndCall* without_waits_over(EndCall* calls, EndCall* behind) {
  EndCall* first = nullptr;
  EndCall** end = &first;
  while (calls != nullptr) {
    std::unique_ptr<EndCall> call(std::exchange(calls, calls->next));
    if (wait_over(*call)) continue;
    *end = call.release();
    end = &(*end)->next;
  }
  *end = behind;
  return first;
}

// Removes the functions whose waits are over from a list, newest first. It takes the whole list before it reads
// it, since announce_end() may take it at any time. Functions that others add meanwhile are newer. Returns
// functions that the caller must hand to the worker: the end was announced while they were out of the list.
EndCall* drop_waits_over(std::atomic<EndCall*>& calls, EndCall* announced) {
  EndCall* kept = nullptr;
  EndCall* newest = calls.load(std::memory_order_acquire);
  while (newest != announced) {
    // The first turn takes the list and leaves null. The next puts the remaining functions back, if the list is
    // still null. If another thread has pushed one in between, the turn takes that, too, and tries again.
    EndCall* const taken = newest;
    EndCall* const left = taken == nullptr ? kept : nullptr;
    if (!calls.compare_exchange_weak(newest, left, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (taken == nullptr) return nullptr;
    kept = without_waits_over(taken, kept);
    newest = nullptr;
  }
  return kept;
}

// Reverses a list: functions are pushed newest first, and called in the order in which they were added.
EndCall* oldest_first(EndCall* newest) {
  EndCall* oldest = nullptr;
  while (newest != nullptr) {
    EndCall* const call = std::exchange(newest, newest->next);
    call->next = std::exchange(oldest, call);
  }
  return oldest;
}

}  // namespace

void EndCall::run() noexcept {
  try {
    function(error);
  } catch (...) {
    flow->broke(caught());
  }
}

EndCall Operation::kAnnounced;

Operation::~Operation() {
  EndCall* call = end_calls_.load(std::memory_order_relaxed);
  if (call == &kAnnounced) return;
  while (call != nullptr) delete std::exchange(call, call->next);
}

bool Operation::poll() {
  if (state() == State::kQueued || state() == State::kRunning) flow->look();
  return done();
}

bool Operation::wait(Clock::time_point until) {
  if (done()) return true;
  check_submitted("wait()");
  return flow->wait(*this, until);
}

void Operation::refuse_unsubmitted(const char* what) {
  throw Exception(ErrorCode::kInvalid,
                  std::string(what) + " of a call of a batch that has not ended: it starts with batch_end()");
}

void Operation::on_end(EndFunction function) {
  check_submitted("on_end()");
  flow->check_process();
  add_end_function(std::move(function));
  if (!done()) flow->leave(Flow::Left::kWaits);  // perhaps nobody waits for it
}

void Operation::end(const Error* error) noexcept {
  // Read before the store of the state: an operation on a stack may be gone after it.
  const bool announced = !on_stack();
  if (error != nullptr) keep_error(*error, error_.emplace());
  state_.store(error != nullptr ? State::kFailed : State::kComplete, std::memory_order_release);
  if (announced) announce_end();
}

void Operation::wait_on(void*) {
  throw Exception(ErrorCode::kInvalid, "wait_on() of a call without CallOptions::stream: it runs on no stream; wait()");
}

// Pushes the function, without a lock, against announce_end(). Either announce_end() finds it in the list, or
// this finds kAnnounced and hands it to the worker. So it is called once in any case.
void Operation::add_end_function(EndFunction function) {
  flow->worker().start();
  auto call = std::make_unique<EndCall>(EndCall{std::move(function)});
  // A program may call wait_any() in a loop, whose waits end without this operation. Each adds a function;
  // dropping the old ones bounds the list.
  if (call->function.target<TellFirstEnd>() != nullptr) {
    EndCall* ended = oldest_first(drop_waits_over(end_calls_, &kAnnounced));
    while (ended != nullptr) call_by_worker(std::unique_ptr<EndCall>(std::exchange(ended, ended->next)));
  }
  EndCall* newest = end_calls_.load(std::memory_order_acquire);
  do {
    if (newest == &kAnnounced) return call_by_worker(std::move(call));
    call->next = newest;
  } while (!end_calls_.compare_exchange_weak(newest, call.get(), std::memory_order_acq_rel, std::memory_order_acquire));
  static_cast<void>(call.release());
}

void Operation::announce_end() {
  EndCall* oldest = oldest_first(end_calls_.exchange(&kAnnounced, std::memory_order_acq_rel));
  while (oldest != nullptr) call_by_worker(std::unique_ptr<EndCall>(std::exchange(oldest, oldest->next)));
}

void Operation::call_by_worker(std::unique_ptr<EndCall> call) {
  if (failed()) keep_error(*error_, call->error);
  call->flow = flow;
  Worker& worker = flow->worker();
  // The worker's thread ends with the last communicator of the join. An operation that ends later calls its
  // functions here.
  worker.stopping() ? call->run() : worker.call(std::move(call));
}

}  // namespace rondo
