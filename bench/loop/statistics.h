#pragma once

#include <vector>

namespace rondo::bench {

// The value below which a fraction `q` (0 .. 1) of the samples lies: linear interpolation between the two nearest
// ranks, as numpy.percentile does by default. Requires at least one sample; they need not be sorted.
double quantile(std::vector<double> samples, double q);
double median(const std::vector<double>& samples);

struct Summary {
  double median = 0;
  double p99 = 0;
  double min = 0;
  double max = 0;
};
// All zero if there are no samples.
Summary summarize(const std::vector<double>& samples);

}  // namespace rondo::bench
