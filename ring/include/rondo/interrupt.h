#pragma once

#include <rondo/export.h>

namespace rondo {

// Asked by a thread that waits for an operation. Not 0: the wait ends, and the communicator fails on all ranks.
using InterruptFunction = int (*)(void* context);

// Lets a program end waits, for example when a signal came (Python's Ctrl-C). `function` is called on each thread that
// has waited for 100 ms, and every 100 ms from then on, with no lock of the library held. If it returns another value
// than 0, the communicator fails: this rank's calls end in kInterrupted, the other ranks' in kAborted naming this one.
// For the whole process; any thread. nullptr: none. A thread that waits may call the function set before once more
// after this has returned.
RONDO_EXPORT void set_interrupt_function(InterruptFunction function, void* context);

}  // namespace rondo
