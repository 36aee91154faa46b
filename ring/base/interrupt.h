#pragma once

#include <atomic>
#include <chrono>

namespace rondo {

// The program's functions for the process and for this thread (rondo/interrupt.h), asked by threads that wait.
bool has_interrupt_function();
// Calls those that are there, on this thread and with no lock held. True: the wait is to end.
bool interrupt_requested();

// The time between two questions of a thread.
inline constexpr std::chrono::milliseconds kBetweenInterruptQuestions{100};

// For waits of a start or an end, which call it at least that often: asks the function if a question is due.
// Once the function has said yes on this thread, it is true until take_interruption().
bool wait_interrupted();
// The same for waits in a communicator's call, which a yes fails: true for that yes alone. Calls of C++ leave a yes
// untaken, and it must not fail the communicator that the thread calls next.
bool call_interrupted();
// Throws Exception(kInterrupted) if wait_interrupted().
void end_wait_if_interrupted();

// Threads on which the function has said yes, and no call has reported it yet.
inline std::atomic<int> interruptions_untaken{0};
bool take_interruption_of_this_thread();
// True, once, after a yes on this thread: the call under way must end as interrupted, even if its operation has
// just succeeded. Every call asks, so it costs a load while no thread was interrupted.
inline bool take_interruption() {
  return interruptions_untaken.load(std::memory_order_relaxed) != 0 && take_interruption_of_this_thread();
}

}  // namespace rondo
