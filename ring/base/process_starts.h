#pragma once

#include <atomic>

namespace rondo {

// Counts of this process, for error messages only. A second join() is a second group, for all ranks. If only some
// ranks call it, all of them wait in vain, and these counts give the reason.

inline std::atomic<int> starts_under_way{0};  // calls of join() that have not returned
inline std::atomic<int> groups_joined{0};     // groups of several processes that were joined and not left

// Counts one call of join() for as long as it lives.
class StartUnderWay {
 public:
  StartUnderWay() { starts_under_way.fetch_add(1); }
  ~StartUnderWay() { starts_under_way.fetch_sub(1); }
  StartUnderWay(const StartUnderWay&) = delete;
  StartUnderWay& operator=(const StartUnderWay&) = delete;
};

}  // namespace rondo
