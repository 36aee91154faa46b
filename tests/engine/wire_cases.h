#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ring/base/types.h"
#include "rondo/communicator.h"
#include "tests/support/element.h"
#include "tests/support/random.h"
#include "tests/support/wire_error.h"

namespace rondo::testing {

using Floats = std::vector<float>;

inline constexpr Algorithm kCodedAllReduces[] = {Algorithm::kAuto,        Algorithm::kRing,       Algorithm::kDirect,
                                                 Algorithm::kTree,        Algorithm::kDoubleTree, Algorithm::kStar,
                                                 Algorithm::kHierarchical};

// What all ranks know of one call, and so draw alike.
struct WireShape {
  Collective collective = Collective::kAllReduce;
  size_t count = 0;  // elements of a block; of all for all_reduce
  DType dtype = DType::kFloat32;
  WireFormat format = WireFormat::kInt8;
  Op op = Op::kSum;
  bool stochastic = false, in_place = false;
  uint64_t seed = 0;
  Algorithm algorithm = Algorithm::kAuto;

  size_t input_count(int world) const {
    return collective == Collective::kReduceScatter ? count * static_cast<size_t>(world) : count;
  }
  size_t output_count(int world) const {
    return collective == Collective::kAllGather ? count * static_cast<size_t>(world) : count;
  }
  std::string text(int world) const {
    return fmt::format("{} of {} {} by {}, {} {}{}{}, world {}, seed {}", collective_name(collective), count,
                       dtype_name(dtype), algorithm_name(algorithm), wire_format_name(format), op_name(op),
                       stochastic ? " at random" : "", in_place ? " in place" : "", world, seed);
  }
  // The bound on given - arrived - left: results of 16 bits, and partial sums, are rounded, each by half a unit.
  double gap(int world) const {
    const double rounding = std::ldexp(1.0, -float_format(dtype).fraction_bits - 1);
    return 1e-5 * world + (dtype == DType::kFloat32 ? 0 : 2 * rounding * world * world);
  }
};

WireShape random_wire_shape(Random& random, Collective collective, std::span<const Algorithm> algorithms);

// Elements of a type in memory, and their values.
class Elements {
 public:
  Elements(DType dtype, const Floats& values) : dtype_(dtype), bytes_(values.size() * dtype_bytes(dtype)) {
    for (size_t i = 0; i < values.size(); ++i) store_value(dtype, at(i), values[i]);
  }
  std::byte* at(size_t i) { return bytes_.data() + i * dtype_bytes(dtype_); }
  Floats values(size_t first, size_t count) {
    Floats values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(load_value(dtype_, at(first + i)));
    return values;
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// The collective, with this rank's input in `from`. The output; in place, where the shape says so.
Floats run_wire_call(Communicator& group, const WireShape& shape, Elements& from, float* residual);
// Bits of any kind; of a block some are alike.
std::vector<std::byte> bits_of(const WireShape& shape, int rank);

// Made by all ranks; throw what is wrong, or differs between the ranks.
// Twice with one residual: what was given = what arrived + what is left.
void check_coded_all_reduce(Communicator& group, const WireShape& shape);
void check_packed(Communicator& group, WireShape shape, Algorithm broadcast);
// Every collective that takes a wire format.
void check_random_wire_calls(Communicator& group, uint64_t seed, int calls);

}  // namespace rondo::testing
