#pragma once

#include <atomic>
#include <chrono>

namespace rondo {

// The program's functions for the process and for this thread (rondo/interrupt.h), asked by threads that wait.
bool has_interrupt_function();
// Calls those that are there, on this thread and with no lock held. True: the wait is to end.
bool interrupt_requested();

// Between two questions of one thread.
inline constexpr std::chrono::milliseconds kBetweenInterruptQuestions{100};

// For waits of a start or an end, which call it at least that often: asks where a question is due. True from the first
// yes until take_interruption().
bool wait_interrupted();
// Throws Exception(kInterrupted) then.
void end_wait_if_interrupted();

// Threads whose yes has not been taken.
inline std::atomic<int> interruptions_untaken{0};
bool take_interruption_of_this_thread();
// True, once, after a yes on this thread: the call under way is to end as interrupted, also where what it waited for
// has ended well in the same moment. Every call asks, so it costs a load where no thread was interrupted.
inline bool take_interruption() {
  return interruptions_untaken.load(std::memory_order_relaxed) != 0 && take_interruption_of_this_thread();
}

}  // namespace rondo
