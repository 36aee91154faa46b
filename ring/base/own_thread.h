#pragma once

#include <functional>
#include <thread>

namespace rondo {

// Starts a thread of the library that runs `run`. name: at most 15 characters, for the system's lists of
// threads. Any thread. Throws Exception(kSystem), which names the thread, if the system has none to give.
//
// All signals are blocked in it from its first instruction on, so the program's handlers run on the program's
// threads. An exception that leaves `run` ends the thread with a line in the log, and not the process: if
// something must fail with the thread, `run` catches it.
std::thread start_own_thread(const char* name, std::function<void()> run);

}  // namespace rondo
