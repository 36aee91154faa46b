#pragma once

#include <atomic>

namespace rondo {

// Counts of this process, for errors alone: a second join() is a second group, for all ranks. Where only some ranks
// make it both sides wait in vain, and these counts give the reason.

inline std::atomic<int> starts_under_way{0};  // join() has not returned
inline std::atomic<int> groups_joined{0};     // and not left, of several processes

class StartUnderWay {
 public:
  StartUnderWay() { starts_under_way.fetch_add(1); }
  ~StartUnderWay() { starts_under_way.fetch_sub(1); }
  StartUnderWay(const StartUnderWay&) = delete;
  StartUnderWay& operator=(const StartUnderWay&) = delete;
};

}  // namespace rondo
