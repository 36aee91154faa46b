#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/fabric.h"

namespace rondo {

// Whom the ranks of a collective call wait for, and why, as one sentence: rondo-trace has the same words for what it
// finds in traces (tools/trace/blame.py).
struct Blame {
  // kStopped: it does not answer. kLate: it has not made the call.
  enum class Why { kStopped, kLate };
  struct Rank {
    std::string name;  // "rank 2 (host b, pid 17)"
    Why why = Why::kLate;
    int64_t ms = 0;              // without a sign of life; behind the first rank
    int rank = -1;               // of the communicator
    std::string meanwhile = {};  // of a late one: what it waits in, and where
  };
  // A link over TCP, with both ends by name.
  struct Link {
    std::string from, to;
    LinkRate rate;
  };

  uint64_t number = 0;  // of the call, from 1
  std::string call;     // in words
  int64_t waited_ms = 0;
  std::vector<Rank> ranks;
  std::vector<Link> links;  // where no rank is to blame: at most the slowest one

  // Nobody is known to be late, and no link has anything to send.
  bool empty() const { return ranks.empty() && links.empty(); }
  // The other blames the same ranks, or the same link, for the same reasons.
  bool same_cause(const Blame& other) const;
  std::string text() const;
};

// "rank 2 (host b, pid 17)"; names: by rank. "rank 9" where there is no such name.
std::string rank_name(int rank, const std::vector<std::string>& names);
// "2.1 s", "350 ms"
std::string time_text(int64_t ms);

}  // namespace rondo
