#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ring/base/types.h"
#include "rondo/store.h"

namespace rondo {

// What all ranks know from their cards before any is tried. Ranks of one class are alike to the kernel, so a trial with
// one of them stands for all: a host of n ranks needs some 2n trials and not n^2 / 2.
struct Classes {
  static constexpr int kNone = -1;  // cannot share memory
  std::vector<int> host;            // by rank
  std::vector<int> number;          // by rank, from 0: equal in ranks of one host that the kernel treats alike
};
// The ranks that `rank` tries, ascending: all of a class try its two lowest ranks, and the lowest ones of the classes
// of a host try each other.
std::vector<int> tried_by(const Classes& classes, int rank);

// What one rank found out about another of its host. A character of the report.
enum class Reach : char {
  kNone = '.',
  kShares = 's',
  kPulls = 'p'
};  // kPulls: shares memory, and pull works both ways

// What a rank tells rank 0 about the ranks that it has tried.
struct Report {
  std::string reach;    // a Reach for every rank of the world, '.' for those that it did not try
  std::string why_not;  // about the first that it did not reach, in words; "": it reached all
};

// What rank 0 tells all ranks.
struct Islands {
  std::vector<int> island;  // Topology::island; empty if no ranks share memory
  std::vector<bool> pulls;  // by rank: pull works between all ranks of its island
  std::string why_not;      // the first of the reports'
  bool operator==(const Islands&) const = default;
};
// Two ranks reach each other if both ends of the pair found so; two that did not try, if they are of one class and both
// reach the same of its two lowest ranks, or if each reaches its class's lowest rank, and these each other. Greedy by
// rank: a rank joins the first island all of whose members it reaches. reports: by rank.
Islands find_islands(const std::vector<Report>& reports, const Classes& classes);

// The islands of all ranks, found by rank 0 from all reports. `start_failed`: asked every 200 ms; true
// ends the wait. Throws Exception: kTimeout, kBootstrap.
Islands agree_islands(Store& store, int rank, const Report& own, const Classes& classes, Store::Deadline deadline,
                      const std::function<bool()>& start_failed);

}  // namespace rondo
