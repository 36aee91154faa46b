#include "bench/loop/statistics.h"

#include <doctest/doctest.h>

namespace rondo::bench {
namespace {

TEST_CASE("quantiles interpolate between the nearest samples, as numpy does") {
  const std::vector<double> samples{4, 1, 3, 2};
  CHECK(quantile(samples, 0) == 1);
  CHECK(quantile(samples, 1) == 4);
  CHECK(median(samples) == 2.5);
  CHECK(quantile(samples, 0.25) == 1.75);
  CHECK(quantile({7}, 0.99) == 7);
}

TEST_CASE("a summary of 0 .. 100, and of nothing") {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);
  const Summary summary = summarize(samples);
  CHECK(summary.median == 50);
  CHECK(summary.p99 == 99);
  CHECK(summary.min == 0);
  CHECK(summary.max == 100);
  CHECK(summarize({}).median == 0);
}

}  // namespace
}  // namespace rondo::bench
