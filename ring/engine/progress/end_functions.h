#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "ring/engine/progress/operation.h"

namespace rondo {

// How many threads are in an end function now: of all joins of the process.
inline std::atomic<int> threads_in_end_functions{0};
// Whether the calling thread is in an end function.
bool in_end_function();
void refuse_wait_of_this_thread();
// Throws Exception(kInvalid) in an end function: its thread is the worker's, which moves what the wait would
// wait for. Every blocking call asks, so it costs one load while no such function runs.
inline void refuse_wait_in_end_function() {
  if (threads_in_end_functions.load(std::memory_order_relaxed) != 0) refuse_wait_of_this_thread();
}

// The functions of Work::on_end() whose operations have ended. The worker's thread calls them one after the
// other, with no lock of the library held, so a function may start calls. The worker owns it.
class EndFunctions {
 public:
  ~EndFunctions();

  // Keeps the call for run(). After close() it calls the function here. Any thread.
  void add(std::unique_ptr<EndCall> call) noexcept;
  bool any();
  // Calls what add() has taken, in that order.
  void run();
  // The thread that ran them is gone. Calls the rest here; later ones run in add().
  void close();
  // Waits until everything that add() had got before has been called. Not in such a function, which would wait
  // for itself.
  void wait();

 private:
  std::mutex mutex_;
  EndCall *first_ = nullptr, *last_ = nullptr;  // owned
  uint64_t added_ = 0, called_ = 0;
  bool closed_ = false;
  std::condition_variable changed_;
};

}  // namespace rondo
