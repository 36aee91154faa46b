#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "ring/plan/simulate.h"

namespace rondo {

// Microseconds of a simulated run by step, all slices of it together. Maps, since steps without slices have no entry.
class RunTimes {
 public:
  explicit RunTimes(const RecordedSimulation& simulation);

  // When a rank has combined the last slice. A step without slices (its block is empty) ends with the step before it.
  double end_us(int rank, uint32_t step) const;
  // From the first byte that leaves to the last that arrives; both end_us() where nothing is sent.
  std::pair<double, double> on_link_us(int from, uint32_t step, int to) const;

 private:
  std::map<std::pair<int, uint32_t>, double> end_us_;                               // rank, step
  std::map<std::tuple<int, uint32_t, int>, std::pair<double, double>> on_link_us_;  // from, step, to
};

}  // namespace rondo
