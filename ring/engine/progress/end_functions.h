#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "ring/engine/progress/operation.h"

namespace rondo {

// Threads that are in an end function.
inline std::atomic<int> threads_in_end_functions{0};
// This thread is one of them.
bool in_end_function();
void refuse_wait_of_this_thread();
// Throws Exception(kInvalid) in such a function: while it waited, nothing would go on. Every blocking call asks, so it
// costs a load where no such function runs.
inline void refuse_wait_in_end_function() {
  if (threads_in_end_functions.load(std::memory_order_relaxed) != 0) refuse_wait_of_this_thread();
}

// The functions of Work::on_end() whose operations have ended: called one after the other, with no lock held.
class EndFunctions {
 public:
  ~EndFunctions();

  // Takes the call, for run(); after close(): calls the function here. Any thread.
  void add(std::unique_ptr<EndCall> call) noexcept;
  bool any();
  // Calls what add() has taken, in that order.
  void run();
  // Nobody runs them any more.
  void close();
  // Waits until what add() got before has been called. Not in such a function.
  void wait();

 private:
  std::mutex mutex_;
  EndCall *first_ = nullptr, *last_ = nullptr;  // owned
  uint64_t added_ = 0, called_ = 0;
  bool closed_ = false;
  std::condition_variable changed_;
};

}  // namespace rondo
