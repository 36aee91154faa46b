#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/collective.h"
#include "rondo/dtype.h"
#include "rondo/op.h"
#include "rondo/wire_format.h"

namespace rondo::life {

// The values of buffers repeat after so many elements: a prime, so that what is misplaced by a slice shows.
inline constexpr uint64_t kPeriod = 1021;

// kPeriod elements, as numbers and as they are stored.
struct Cycle {
  DType dtype = DType::kInt8;
  std::vector<double> values;
  std::vector<std::byte> bytes;
};

// How values are made and folded (README.md, "The values").
struct Kind {
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  int members = 1;
  bool random = false;
  int first = 0;  // of a scan: the members that are folded are those below it; 0: all are
  auto operator<=>(const Kind&) const = default;
};

// T of the text. Valid for ever; any thread, each has its own.
const Cycle& input_cycle(const Kind& kind);
// [k]: the op over all members m, or those below Kind::first, of T[(k + 131 m) mod P].
const Cycle& reduced_cycle(const Kind& kind);
// Where member m's values begin in T, for a salt.
inline uint64_t phase_of(int member, uint64_t salt) {
  return (131 * static_cast<uint64_t>(member) + 17 * salt) % kPeriod;
}
// Never 1, by which a member that was not scaled would go unseen.
inline double factor_of(int member) { return member % 2 == 0 ? 2 : -1; }

// How far a result may be from reduced_cycle(); 0: equal to the bit.
double bound_of(const Kind& kind, WireFormat wire, bool folds, bool stochastic, bool residual);

// Writes `count` elements, the first of which is cycle[phase].
void fill(const Cycle& cycle, uint64_t phase, std::byte* to, uint64_t count);

// The values of the enumerations by their names; throws std::runtime_error.
DType dtype_named(std::string_view name);
Op op_named(std::string_view name);
Algorithm algorithm_named(std::string_view name);
WireFormat wire_format_named(std::string_view name);

// What sparse_all_reduce() does with the inputs and residuals of all members, whose selections add up in `sum`.
struct SparseModel {
  std::vector<std::vector<float>> residuals;  // of each member; empty: none is kept
  std::vector<float> sum;
  // kTopK by spars, or kThreshold.
  void step(const std::vector<std::vector<float>>& inputs, bool threshold, double spars, bool residual,
            const std::vector<uint64_t>& tensors);
};

// FNV-1a
uint64_t hash_of(const std::byte* data, size_t bytes);

}  // namespace rondo::life
