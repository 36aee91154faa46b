#pragma once

#include <functional>

namespace rondo_torch {

// Runs the task on a thread of this module, which no other task shares while it runs: a task may wait for others.
// Threads that are idle for some seconds end. Where the system gives no thread it runs here.
void run_in_background(std::function<void()> task);

}  // namespace rondo_torch
