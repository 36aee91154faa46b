#pragma once

#include <rondo/export.h>

namespace rondo {

// Asked by a thread that waits for an operation, or for other ranks in Communicator::join(). Not 0: the wait ends, and
// the communicator fails on all ranks.
using InterruptFunction = int (*)(void* context);

// Lets a program end waits, for example when a signal came (Python's Ctrl-C). `function` is called on each thread that
// has waited for 100 ms, and every 100 ms from then on, with no lock of the library held. If it returns another value
// than 0, the communicator fails: this rank's calls end in kInterrupted, the other ranks' in kAborted naming this one.
// join() throws kInterrupted. For the whole process; any thread. nullptr: none. When this returns, no other thread is
// in the function set before, unless it has been there for a second.
RONDO_EXPORT void set_interrupt_function(InterruptFunction function, void* context);
// The same for waits of the calling thread alone, beside that of the process.
RONDO_EXPORT void set_thread_interrupt_function(InterruptFunction function, void* context);

}  // namespace rondo
