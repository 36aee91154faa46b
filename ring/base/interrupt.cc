#include "ring/base/interrupt.h"

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "rondo/error.h"
#include "rondo/interrupt.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// The longest wait of set_interrupt_function() for threads in the function before: one that never returns must
// not hold up the change.
constexpr std::chrono::seconds kLongestLeaving{1};

// The program's function. There is one for the process, since a signal reaches the process and not a
// communicator.
struct Program {
  std::mutex mutex;
  std::condition_variable left;
  std::atomic<InterruptFunction> function{nullptr};
  void* context = nullptr;
  int inside = 0;  // calls of functions under way
};

// Never destroyed: threads may wait while the process ends.
Program& program() {
  static auto& the_program = *new Program;
  return the_program;
}

thread_local InterruptFunction of_thread = nullptr;
thread_local void* context_of_thread = nullptr;
thread_local int inside_here = 0;  // of this thread's waits, one in the function of the other
// A yes that no call of this thread has reported yet; it is counted in interruptions_untaken.
thread_local bool untaken = false;
// Each thread asks at its own pace, however many waits it is in.
thread_local Clock::time_point next_question{};

// In a child of fork(): threads of the parent that held the lock, or were in the function, are missing. The
// thread that forked does not hold the lock.
void forget_other_threads() {
  std::construct_at(&program().mutex);
  std::construct_at(&program().left);
  program().inside = inside_here;
}

bool program_asks_for_it() {
  // Called without the lock, so that it may take long; `inside` says to set_interrupt_function() that it runs.
  InterruptFunction function = nullptr;
  void* context = nullptr;
  {
    std::lock_guard lock(program().mutex);
    function = program().function.load(std::memory_order_relaxed);
    context = program().context;
    if (function == nullptr) return false;
    ++program().inside;
    ++inside_here;
  }
  const bool wanted = function(context) != 0;
  {
    std::lock_guard lock(program().mutex);
    --program().inside;
    --inside_here;
  }
  program().left.notify_all();
  return wanted;
}

}  // namespace

void set_interrupt_function(InterruptFunction function, void* context) {
  static const int failed = pthread_atfork(nullptr, nullptr, forget_other_threads);
  if (failed != 0) throw std::bad_alloc();
  std::unique_lock lock(program().mutex);
  program().context = context;
  program().function.store(function, std::memory_order_relaxed);
  program().left.wait_for(lock, kLongestLeaving, [] { return program().inside == inside_here; });
}

void set_thread_interrupt_function(InterruptFunction function, void* context) {
  of_thread = function;
  context_of_thread = context;
}

bool has_interrupt_function() {
  return of_thread != nullptr || program().function.load(std::memory_order_relaxed) != nullptr;
}

bool interrupt_requested() {
  const bool wanted = (of_thread != nullptr && of_thread(context_of_thread) != 0) || program_asks_for_it();
  if (wanted && !std::exchange(untaken, true)) interruptions_untaken.fetch_add(1);
  return wanted;
}

bool wait_interrupted() { return untaken || call_interrupted(); }

bool call_interrupted() {
  const auto now = Clock::now();
  if (now < next_question || !has_interrupt_function()) return false;
  next_question = now + kBetweenInterruptQuestions;
  return interrupt_requested();
}

void end_wait_if_interrupted() {
  if (!wait_interrupted()) return;
  throw Exception(ErrorCode::kInterrupted, "the start was interrupted while it waited for other ranks");
}

bool take_interruption_of_this_thread() {
  if (!std::exchange(untaken, false)) return false;
  interruptions_untaken.fetch_sub(1);
  return true;
}

}  // namespace rondo
