#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo {

// Vector clock of a rank: [r] events of rank r that it knows to be over. All others may happen at any time.
using VectorClock = std::vector<uint32_t>;

inline void join(VectorClock& clock, const VectorClock& other) {
  for (size_t r = 0; r < other.size(); ++r) clock[r] = std::max(clock[r], other[r]);
}

// The history of a piece of memory that several ranks reach: the last write, and each rank's last read since then.
// More is not needed: a rank that knows of a write also knows of everything before it. Two accesses race if one of
// them is a write and the later rank has not heard of the earlier access.
class Accesses {
 public:
  enum class Kind : uint8_t { kRead, kWrite };
  struct Access {
    int rank;
    uint32_t event;  // of this rank, from 1 on
    Kind kind;
  };

  // An access that races with one by `rank`, which knows what `clock` says; nullptr: there is none.
  const Access* race(int rank, const VectorClock& clock, Kind kind) const {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const Access& access) {
      const bool over = access.rank == rank || access.event <= clock[static_cast<size_t>(access.rank)];
      return !over && (kind == Kind::kWrite || access.kind == Kind::kWrite);
    });
    return found == all_.end() ? nullptr : &*found;
  }
  void add(const Access& access) {
    std::erase_if(all_, [&](const Access& old) {
      return access.kind == Kind::kWrite || (old.kind == Kind::kRead && old.rank == access.rank);
    });
    all_.push_back(access);
  }

 private:
  // Either one write, perhaps with reads after it, or reads alone: a write replaces all that came before.
  std::vector<Access> all_;
};

}  // namespace rondo
