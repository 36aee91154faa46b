#pragma once

#include <string>
#include <vector>

#include "bench/contest.h"
#include "bench/machine.h"

namespace rondo::bench {

// Our time / a peer's, of interleaved runs. Ratios survive a change of machine better than times do.
struct Ratio {
  std::string what;  // "all_reduce, tcp, plain buffers, 2 ranks, 64 MiB / openmpi"
  double median = 0;
  double low = 0, high = 0;  // of the runs
  bool operator==(const Ratio&) const = default;
};
std::vector<Ratio> ratios_of(const std::vector<Contest>& contests);
Ratio ratio_of(const std::string& what, const std::vector<double>& runs);

// Ratios that the file holds for other questions stay. Throw Exception(kSystem) naming the file.
void write_baseline(const std::string& path, const std::vector<Ratio>& ratios, const Machine& machine);
std::vector<Ratio> read_baseline(const std::string& path);

// A ratio fell if its median is above the file's by more than noise: the larger of both spreads (high - low), at least
// 5 % of the file's median. What only one side has is not compared.
struct BaselineVerdict {
  bool fell = false;
  std::string text;
};
std::vector<BaselineVerdict> compare_with_baseline(const std::vector<Ratio>& now, const std::vector<Ratio>& before);

}  // namespace rondo::bench
