#pragma once

#include <limits>
#include <map>
#include <span>
#include <vector>

#include "bench/bars.h"
#include "bench/run_answers.h"

namespace rondo::bench {

// What the machine did without any library in one run; of its turns the fastest.
struct MachineFigures {
  std::map<int, double> raw_gbps, walk_gbps;  // by world
  double exchange_us = std::numeric_limits<double>::infinity();
  double fused_us = std::numeric_limits<double>::infinity();
};

// A ratio for each run that has both figures, or why there are none. answers: to the questions that were asked (of
// bar_questions.h); machine: of each run, with what the bar is against.
Judged judge_runs(const Bar& bar, std::span<const RunAnswers* const> answers, std::span<const MachineFigures> machine);

}  // namespace rondo::bench
