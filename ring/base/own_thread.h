#pragma once

#include <functional>
#include <thread>

namespace rondo {

// Starts a thread of the library's own, beside the program's, that runs `run`; `name` (at most 15 characters) is what
// the system's lists call it. Signals are blocked in it from its first instruction on, so the program's handlers run on
// the program's threads. An exception that `run` lets pass ends that thread, with a line in the log, and not the
// process: who has something to fail with it catches it before. Throws Exception(kSystem), which names the thread, if
// the system has none to give. Any thread.
std::thread start_own_thread(const char* name, std::function<void()> run);

}  // namespace rondo
