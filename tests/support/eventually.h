#pragma once

#include <chrono>
#include <concepts>
#include <thread>

namespace rondo::testing {

// Polls until the condition holds; false at the deadline.
template <std::predicate Condition>
bool eventually(const Condition& condition, int ms = 10'000) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace rondo::testing
