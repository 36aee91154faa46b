#include "ring/base/interrupt.h"

#include <atomic>
#include <mutex>

#include "rondo/interrupt.h"

namespace rondo {
namespace {

// Of the process: a signal reaches the process, not a communicator.
struct {
  std::mutex mutex;
  std::atomic<InterruptFunction> function{nullptr};
  void* context = nullptr;
} program;

}  // namespace

void set_interrupt_function(InterruptFunction function, void* context) {
  std::lock_guard lock(program.mutex);
  program.context = context;
  program.function.store(function, std::memory_order_relaxed);
}

bool has_interrupt_function() { return program.function.load(std::memory_order_relaxed) != nullptr; }

bool interrupt_requested() {
  InterruptFunction function = nullptr;
  void* context = nullptr;
  {
    std::lock_guard lock(program.mutex);
    function = program.function.load(std::memory_order_relaxed);
    context = program.context;
  }
  return function != nullptr && function(context) != 0;
}

}  // namespace rondo
