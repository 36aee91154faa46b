#include "tools/plan/run_times.h"

#include <algorithm>

namespace rondo {

// Slices of a step end in order, so the last one stands for the step. A transfer's span reaches from the first slice to
// the last.
RunTimes::RunTimes(const RecordedSimulation& simulation) {
  for (const Machine::Move& move : simulation.moves) end_us_[{move.rank, move.step}] = move.end_us;
  for (const Machine::Transfer& transfer : simulation.transfers) {
    const std::pair<double, double> span{transfer.begin_us, transfer.end_us};
    const auto [it, first] = on_link_us_.insert({{transfer.from, transfer.step, transfer.to}, span});
    if (!first) it->second.second = std::max(it->second.second, transfer.end_us);
  }
}

// The last step at or before this one that has slices; 0: there is none.
double RunTimes::end_us(int rank, uint32_t step) const {
  const auto after = end_us_.upper_bound({rank, step});
  if (after == end_us_.begin()) return 0;
  const auto& [key, us] = *std::prev(after);
  return key.first == rank ? us : 0;
}

std::pair<double, double> RunTimes::on_link_us(int from, uint32_t step, int to) const {
  const auto found = on_link_us_.find({from, step, to});
  if (found != on_link_us_.end()) return found->second;
  const double us = end_us(from, step);
  return {us, us};
}

}  // namespace rondo
