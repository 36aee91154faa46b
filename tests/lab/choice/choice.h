#pragma once

#include <string>
#include <vector>

namespace rondo::bench {

// Times of one way to run a call, in microseconds: one of each round.
struct RouteTimes {
  std::string name;
  std::vector<double> us;
};

// How what the library chooses compares with the best that it could have chosen.
struct ChoiceVerdict {
  std::string best;    // picked in even rounds, by the median
  double best_us = 0;  // medians of odd rounds
  double chosen_us = 0;
  double ratio = 1;  // the median over odd rounds of chosen / best of the round
};

// `routes` are those that were forced, at least one, with as many rounds as `chosen`, at least two. Picked and judged
// on different rounds, so that no way is called the best because it was lucky.
ChoiceVerdict judge_choice(const RouteTimes& chosen, const std::vector<RouteTimes>& routes);

}  // namespace rondo::bench
