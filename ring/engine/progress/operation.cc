#include "ring/engine/progress/operation.h"

#include <string>
#include <utility>

#include "ring/engine/progress/flow.h"
#include "ring/engine/progress/worker.h"

namespace rondo {

void EndCall::run() noexcept {
  try {
    function(error);
  } catch (...) {
    flow->failed_on_thread(caught());
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
  const bool announced = !on_stack();
  if (error != nullptr) keep_error(*error, error_.emplace());
  state_.store(error != nullptr ? State::kFailed : State::kComplete, std::memory_order_release);
  if (announced) announce_end();
}

void Operation::wait_on(void*) {
  throw Exception(ErrorCode::kInvalid, "wait_on() of a call without CallOptions::stream: it runs on no stream; wait()");
}

void Operation::add_end_function(EndFunction function) {
  flow->worker().start();
  auto call = std::make_unique<EndCall>(EndCall{std::move(function)});
  EndCall* newest = end_calls_.load(std::memory_order_acquire);
  do {
    if (newest == &kAnnounced) return call_by_worker(std::move(call));
    call->next = newest;
  } while (!end_calls_.compare_exchange_weak(newest, call.get(), std::memory_order_acq_rel, std::memory_order_acquire));
  static_cast<void>(call.release());
}

void Operation::announce_end() {
  EndCall* newest = end_calls_.exchange(&kAnnounced, std::memory_order_acq_rel);
  EndCall* oldest = nullptr;
  while (newest != nullptr) {
    EndCall* const call = std::exchange(newest, newest->next);
    call->next = std::exchange(oldest, call);
  }
  while (oldest != nullptr) call_by_worker(std::unique_ptr<EndCall>(std::exchange(oldest, oldest->next)));
}

void Operation::call_by_worker(std::unique_ptr<EndCall> call) {
  if (failed()) keep_error(*error_, call->error);
  call->flow = flow;
  Worker& worker = flow->worker();
  worker.stopping() ? call->run() : worker.call(std::move(call));
}

}  // namespace rondo
