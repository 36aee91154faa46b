#pragma once

#include <cstdint>

namespace rondo {

// Who takes part in exchanges in pairs: the largest power of two up to the world. Of more ranks the first 2 * extra
// form pairs (2i, 2i + 1), one member each: the odd one, a companion, takes part through the even one. So a member with
// bits 0 .. k-1 free stands for an unbroken run of ranks.
struct Members {
  explicit Members(int world) {
    while (count * 2 <= world) {
      count *= 2;
      ++exchanges;
    }
    extra = world - count;
  }
  bool companion(int rank) const { return rank < 2 * extra && rank % 2 == 1; }
  bool paired(int member) const { return member < extra; }
  int rank_of(int member) const { return paired(member) ? 2 * member : member + extra; }
  int member_of(int rank) const { return rank < 2 * extra ? rank / 2 : rank - extra; }
  // Members that each side of exchange k still answers for, itself among them: half as many after each exchange.
  int kept(int k) const { return count >> (k + 1); }
  // The most that a rank has, which exchanges with a different member each time.
  uint32_t max_peers() const { return static_cast<uint32_t>(exchanges + (extra > 0)); }
  // Members, a power of two; its logarithm; ranks beyond it, which is the number of pairs.
  int count = 1, exchanges = 0, extra = 0;
};

}  // namespace rondo
