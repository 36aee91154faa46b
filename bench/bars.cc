#include "bench/bars.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/statistics.h"

namespace rondo::bench {

Verdict judge(const Bar& bar) {
  if (bar.ratios.empty()) return Verdict::kNotJudged;
  const double ratio = median(bar.ratios);
  const bool holds = bar.kind == Bar::Kind::kAtLeast ? ratio >= bar.bound : ratio <= bar.bound;
  return holds ? Verdict::kHolds : Verdict::kFails;
}

std::string bar_text(const Bar& bar) {
  constexpr const char* kNames[] = {"HOLDS", "FAILS", "NOT JUDGED"};
  std::string text = fmt::format("{:<10} {}: ", kNames[static_cast<int>(judge(bar))], bar.name);
  if (bar.ratios.empty()) return text + bar.missing;
  for (double ratio : bar.ratios) text += fmt::format("{:.3f} ", ratio);
  return text + fmt::format("median {:.3f}, {} {:.2f}", median(bar.ratios),
                            bar.kind == Bar::Kind::kAtLeast ? "at least" : "at most", bar.bound);
}

int bars_exit_code(const std::vector<Bar>& bars) {
  return std::any_of(bars.begin(), bars.end(), [](const Bar& b) { return judge(b) == Verdict::kFails; }) ? 1 : 0;
}

}  // namespace rondo::bench
