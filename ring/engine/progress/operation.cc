#include "ring/engine/progress/operation.h"

#include <string>
#include <utility>

#include "ring/base/caught.h"
#include "ring/engine/progress/progress_engine.h"
#include "ring/engine/progress/progress_thread.h"

namespace rondo {

Operation::EndEntry Operation::kAnnounced;

Operation::~Operation() {
  EndEntry* entry = end_entries_.load(std::memory_order_relaxed);
  if (entry == &kAnnounced) return;
  while (entry != nullptr) delete std::exchange(entry, entry->next);
}

bool Operation::wait(Clock::time_point until) {
  if (done()) return true;
  if (!engine) refuse_unsubmitted("wait()");
  return engine->wait(*this, until);
}

std::shared_ptr<ProgressThread> Operation::progress_thread() const {
  return engine ? engine->progress_thread() : nullptr;
}

void Operation::refuse_unsubmitted(const char* what) {
  throw Exception(ErrorCode::kInvalid,
                  std::string(what) + " of a call of a batch that has not ended: it starts with batch_end()");
}

void Operation::on_end(EndFunction function) {
  if (!done() && !engine) refuse_unsubmitted("on_end()");
  if (engine) engine->check_process();
  add_end_function(std::move(function));
}

void Operation::wait_on(void*) {
  throw Exception(ErrorCode::kInvalid, "wait_on() of a call without CallOptions::stream: it runs on no stream; wait()");
}

void Operation::add_end_function(EndFunction function) {
  if (const auto caller = progress_thread()) caller->start();
  auto entry = std::make_unique<EndEntry>(EndEntry{std::move(function)});
  EndEntry* newest = end_entries_.load(std::memory_order_acquire);
  do {
    if (newest == &kAnnounced) return call_by_progress_thread(std::move(entry->function));
    entry->next = newest;
  } while (
      !end_entries_.compare_exchange_weak(newest, entry.get(), std::memory_order_acq_rel, std::memory_order_acquire));
  static_cast<void>(entry.release());
}

void Operation::announce_end() {
  EndEntry* newest = end_entries_.exchange(&kAnnounced, std::memory_order_acq_rel);
  EndEntry* oldest = nullptr;
  while (newest != nullptr) {
    EndEntry* const entry = std::exchange(newest, newest->next);
    entry->next = std::exchange(oldest, entry);
  }
  while (oldest != nullptr) {
    const std::unique_ptr<EndEntry> entry(std::exchange(oldest, oldest->next));
    call_by_progress_thread(std::move(entry->function));
  }
}

void Operation::call_by_progress_thread(EndFunction function) {
  const Error error = failed() ? error_ : Error{};
  if (const auto caller = progress_thread()) {
    caller->call([function = std::move(function), error, engine = engine] {
      try {
        function(error);
      } catch (...) {
        if (!engine) throw;
        engine->failed_on_thread(caught());
      }
    });
  } else {
    function(error);
  }
}

}  // namespace rondo
