#pragma once

#include <chrono>
#include <thread>

namespace rondo {

// A thread of the host waits in a stream's place, until there(). It yields for 200 us first: a GPU's round trip
// of some 8 us is over by then, and a sleep takes 100 us. look() is called between sleeps.
template <class There, class Look>
void wait_on_host(There there, Look look) {
  constexpr std::chrono::microseconds kSpin{200}, kPause{50};
  for (const auto begin = std::chrono::steady_clock::now(); !there();) {
    if (std::chrono::steady_clock::now() - begin < kSpin) {
      std::this_thread::yield();  // to the ranks that share the core
      continue;
    }
    look();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace rondo
