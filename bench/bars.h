#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rondo::bench {

// A promise about speed: the median of the ratios of several interleaved runs against a bound.
struct Bar {
  enum class Kind { kAtLeast, kAtMost };
  std::string name;
  Kind kind = Kind::kAtLeast;
  double bound = 1;
  std::vector<double> ratios;  // one a run
  std::string missing;         // why there are none: NOT JUDGED
};

enum class Verdict { kHolds, kFails, kNotJudged };
Verdict judge(const Bar& bar);

// "HOLDS  share of limit ... : 0.91 0.88 0.90 0.93 0.89, median 0.90, at least 0.85".
std::string bar_text(const Bar& bar);

// 1 if a bar fails, else 0.
int bars_exit_code(const std::vector<Bar>& bars);

}  // namespace rondo::bench
