#include "tests/lab/choice/choice.h"

#include <algorithm>
#include <cstddef>

#include "bench/loop/statistics.h"

namespace rondo::bench {
namespace {

// Every second one, from `first` on.
std::vector<double> every_second(const std::vector<double>& values, size_t first) {
  std::vector<double> picked;
  for (size_t i = first; i < values.size(); i += 2) picked.push_back(values[i]);
  return picked;
}

}  // namespace

ChoiceVerdict judge_choice(const RouteTimes& chosen, const std::vector<RouteTimes>& routes) {
  const auto best = std::min_element(routes.begin(), routes.end(), [](const RouteTimes& a, const RouteTimes& b) {
    return median(every_second(a.us, 0)) < median(every_second(b.us, 0));
  });
  ChoiceVerdict verdict;
  verdict.best = best->name;
  verdict.best_us = median(every_second(best->us, 1));
  verdict.chosen_us = median(every_second(chosen.us, 1));
  std::vector<double> ratios;
  for (size_t i = 1; i < chosen.us.size(); i += 2) ratios.push_back(chosen.us[i] / best->us[i]);
  verdict.ratio = median(ratios);
  return verdict;
}

}  // namespace rondo::bench
