#include "csrc/forks.h"

#include <pthread.h>

#include <atomic>

namespace rondo_torch {

namespace {

// Counted in the child, by a handler of fork(): calls read it where the id of the process would be a system call.
std::atomic<int> forks{0};
const int watching = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

int forks_so_far() { return forks.load(std::memory_order_relaxed); }

}  // namespace rondo_torch
