#include "ring/engine/progress/end_functions.h"

#include <utility>

namespace rondo {
namespace {

// Static and behind functions: gold links a hidden thread-local variable of another file to offset 0 of the shared
// library's block (binutils 2.40).
thread_local bool calling_functions = false;

}  // namespace

bool in_end_function() { return calling_functions; }

void refuse_wait_of_this_thread() {
  if (!calling_functions) return;
  throw Exception(ErrorCode::kInvalid, "a function of on_end() must not wait: start calls by their asynchronous forms");
}

EndFunctions::~EndFunctions() {
  while (first_ != nullptr) delete std::exchange(first_, first_->next);
}

void EndFunctions::add(std::unique_ptr<EndCall> call) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      call->next = nullptr;
      (last_ != nullptr ? last_->next : first_) = call.get();
      last_ = call.release();
      ++added_;
    }
  }
  if (call) call->run();
}

bool EndFunctions::any() {
  std::lock_guard lock(mutex_);
  return first_ != nullptr;
}

// Takes the whole list, then calls without the lock: functions may start calls, whose ends come back to add().
// called_ grows after the functions have returned, which is what wait() waits for.
void EndFunctions::run() {
  EndCall* calls = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (first_ == nullptr) return;
    std::swap(calls, first_);
    last_ = nullptr;
  }
  calling_functions = true;
  threads_in_end_functions.fetch_add(1);
  uint64_t done = 0;
  for (; calls != nullptr; ++done) {
    const std::unique_ptr<EndCall> call(std::exchange(calls, calls->next));
    call->run();
  }
  threads_in_end_functions.fetch_sub(1);
  calling_functions = false;
  {
    std::lock_guard lock(mutex_);
    called_ += done;
  }
  changed_.notify_all();
}

void EndFunctions::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  run();
}

void EndFunctions::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, asked = added_] { return called_ >= asked; });
}

}  // namespace rondo
