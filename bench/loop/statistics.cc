#include "bench/loop/statistics.h"

#include <algorithm>
#include <cmath>

#include "ring/base/check.h"

namespace rondo::bench {
namespace {

// Requires at least one sample.
double sorted_quantile(const std::vector<double>& sorted, double q) {
  const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (position - static_cast<double>(below));
}

}  // namespace

double quantile(std::vector<double> samples, double q) {
  RONDO_CHECK(!samples.empty(), "a quantile of nothing");
  std::sort(samples.begin(), samples.end());
  return sorted_quantile(samples, q);
}

double median(const std::vector<double>& samples) { return quantile(samples, 0.5); }

Summary summarize(const std::vector<double>& samples) {
  if (samples.empty()) return {};
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  return {sorted_quantile(sorted, 0.5), sorted_quantile(sorted, 0.99), sorted.front(), sorted.back()};
}

}  // namespace rondo::bench
