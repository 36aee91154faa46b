#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bench/loop/group.h"
#include "ring/base/types.h"
#include "ring/plan/cost_model.h"

namespace rondo::bench {

// Two ranks alone, seen from one of them: what they pay is what one pair costs.
struct PairGroups {
  std::unique_ptr<Group> small;  // runs all_reduce directly: one message each way
  std::unique_ptr<Group> large;  // runs it round the ring: each rank sends and receives as many bytes as there are
};

// What a calibration measures with. The functions are collective over the world unless they say otherwise.
class CalibrationSeam {
 public:
  virtual ~CalibrationSeam() = default;
  virtual Group& world() = 0;
  virtual const Topology& topology() const = 0;
  // Empty on the ranks that are neither a nor b.
  virtual PairGroups open_pair(int a, int b) = 0;
  // Microseconds since some moment; local.
  virtual double now_us() = 0;
  // Folds two sources of `bytes` into a target, as float32 sums; local.
  virtual void fold(uint64_t bytes) = 0;
};

// By kind of pair: the first two ranks of that kind. The same on every rank.
std::array<std::optional<std::pair<int, int>>, kPairKinds> pairs_to_measure(const Topology& topology);

struct Calibration {
  CostModel model;
  std::array<bool, kPairKinds> measured{};  // the others keep the defaults of CostModel
};

// Measures alpha by all_reduces of 8 B between two ranks of each kind that the world has, beta by large ones, gamma by
// folds of slices; the messages' costs keep their defaults. Takes some seconds; every rank gets the same. The groups'
// exceptions pass through.
Calibration calibrate(CalibrationSeam& seam);

}  // namespace rondo::bench
