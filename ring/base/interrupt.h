#pragma once

namespace rondo {

// The program's function of set_interrupt_function() (rondo/interrupt.h), asked by threads that wait.
bool has_interrupt_function();
// Calls it, if there is one, on this thread and with no lock held. True: the wait is to end.
bool interrupt_requested();

}  // namespace rondo
