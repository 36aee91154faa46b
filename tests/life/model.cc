#include "tests/life/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <stdexcept>

#include "tests/support/element.h"
#include "tests/support/fold.h"
#include "tests/support/wire_error.h"

namespace rondo::life {
namespace {

using testing::encode_value;
using testing::fold_integers;

int64_t largest_input(const Kind& kind) {
  int64_t limit = int64_t{1} << 20;
  switch (kind.dtype) {
    case DType::kFloat8E5M2:
      limit = 8;
      break;
    case DType::kFloat8E4M3:
      limit = 16;
      break;
    case DType::kInt8:
      limit = 127;
      break;
    case DType::kUint8:
      limit = 255;
      break;
    case DType::kBfloat16:
      limit = 256;
      break;
    case DType::kFloat16:
      limit = 2048;
      break;
    default:
      break;
  }
  if (kind.op == Op::kPremulSum) limit /= 2;
  return std::max<int64_t>(1, std::min<int64_t>(510, limit / kind.members));
}

double input_value(const Kind& kind, uint64_t k) {
  const auto h = static_cast<int64_t>(772 * k % kPeriod), largest = largest_input(kind);
  if (kind.random) return static_cast<double>(h - 510) / 7 * std::ldexp(1.0, static_cast<int>(h % 9 - 4));
  if (kind.op == Op::kProduct && kind.dtype != DType::kBool) return static_cast<double>(1 + h % 2);
  if (kind.dtype == DType::kBool) return static_cast<double>(h % 2);
  const bool is_signed = dtype_is_float(kind.dtype) || testing::is_signed_integer(kind.dtype);
  return static_cast<double>(is_signed ? h % (2 * largest + 1) - largest : h % (largest + 1));
}

uint64_t whole(const Kind& kind, double value) { return encode_value(kind.dtype, value); }

uint64_t reduced_integer(const Kind& kind, const std::vector<double>& values) {
  uint64_t result = whole(kind, values[0]);
  for (size_t m = 1; m < values.size(); ++m) {
    result = fold_integers(kind.dtype, kind.op, result, whole(kind, values[m]));
  }
  if (kind.op != Op::kAverage) return result;
  if (!testing::is_signed_integer(kind.dtype)) return result / static_cast<uint64_t>(kind.members);
  return testing::low_bits(kind.dtype, static_cast<uint64_t>(testing::as_signed(kind.dtype, result) / kind.members));
}

double reduced_float(const Kind& kind, std::vector<double> values) {
  if (kind.op != Op::kPremulSum) return testing::fold_floats(kind.dtype, kind.op, values, 1).value;
  for (size_t m = 0; m < values.size(); ++m) values[m] *= factor_of(static_cast<int>(m));
  return testing::fold_floats(kind.dtype, Op::kSum, values, 1).value;
}

void store(Cycle& cycle, uint64_t bits) {
  const size_t at = cycle.bytes.size();
  cycle.bytes.resize(at + dtype_bytes(cycle.dtype));
  testing::store_element(cycle.dtype, cycle.bytes.data() + at, bits);
  cycle.values.push_back(testing::decode_value(cycle.dtype, bits));
}

Cycle make_input(const Kind& kind) {
  Cycle cycle{kind.dtype, {}, {}};
  for (uint64_t k = 0; k < kPeriod; ++k) store(cycle, encode_value(kind.dtype, input_value(kind, k)));
  return cycle;
}

// Values that round are kept as they are in float64.
Cycle make_reduced(const Kind& kind) {
  const Cycle& input = input_cycle(kind);
  Cycle cycle{kind.dtype, {}, {}};
  for (uint64_t k = 0; k < kPeriod; ++k) {
    std::vector<double> values;
    const int folded = kind.first > 0 ? kind.first : kind.members;
    for (int m = 0; m < folded; ++m) values.push_back(input.values[(k + phase_of(m, 0)) % kPeriod]);
    if (folded == 1 && kind.op != Op::kPremulSum) {
      store(cycle, testing::load_element(kind.dtype, input.bytes.data() + k * dtype_bytes(kind.dtype)));
    } else if (dtype_is_float(kind.dtype)) {
      const double value = reduced_float(kind, values);
      store(cycle, encode_value(kind.dtype, value));
      cycle.values.back() = value;
    } else {
      store(cycle, reduced_integer(kind, values));
    }
  }
  return cycle;
}

template <typename Make>
const Cycle& cached(std::map<Kind, Cycle>& cache, const Kind& kind, const Make& make) {
  const auto found = cache.find(kind);
  return found != cache.end() ? found->second : cache.emplace(kind, make(kind)).first->second;
}

// The largest magnitude of any input.
double magnitude(const Kind& kind) {
  double largest = 0;
  for (double value : input_cycle(kind).values) largest = std::max(largest, std::abs(value));
  return largest;
}

template <typename Value, typename NameOf>
Value named(std::string_view name, int values, const NameOf& name_of, const char* what) {
  for (int i = 0; i < values; ++i) {
    if (name == name_of(static_cast<Value>(i))) return static_cast<Value>(i);
  }
  throw std::runtime_error("life: no " + std::string(what) + " is named '" + std::string(name) + "'");
}

}  // namespace

const Cycle& input_cycle(const Kind& kind) {
  thread_local std::map<Kind, Cycle> cache;
  return cached(cache, kind, make_input);
}

const Cycle& reduced_cycle(const Kind& kind) {
  thread_local std::map<Kind, Cycle> cache;
  return cached(cache, kind, make_reduced);
}

double bound_of(const Kind& kind, WireFormat wire, bool folds, bool stochastic, bool residual) {
  const double members = kind.members;
  if (!dtype_is_float(kind.dtype) || kind.members == 1) return 0;
  // Errors of the rounding of sums of up to `members` values, and of as many encodings of them.
  const bool exact_average = kind.op != Op::kAverage || (kind.members & (kind.members - 1)) == 0;
  double bound = 0;
  const double sum = magnitude(kind) * members * (kind.op == Op::kPremulSum ? 2 : 1);
  if (folds && (kind.random || !exact_average || wire != WireFormat::kNone)) {
    bound += members * std::ldexp(sum, -testing::float_format(kind.dtype).fraction_bits) + std::ldexp(members, -9);
  }
  if (wire == WireFormat::kNone) return bound;
  const double carried = residual ? 2 : 1;  // a residual is below the error, and is added to the input
  // The table's size is that of the partial sums, which the errors so far have made larger.
  const double largest = folds ? sum : magnitude(kind);
  const double once = wire == WireFormat::kPacked ? 0 : testing::wire_error(wire, largest, largest, stochastic);
  return bound + (folds ? members : 1) * once * carried * 1.5;
}

void fill(const Cycle& cycle, uint64_t phase, std::byte* to, uint64_t count) {
  const size_t size = dtype_bytes(cycle.dtype);
  for (uint64_t at = phase % kPeriod; count > 0; at = 0) {
    const uint64_t part = std::min(count, kPeriod - at);
    std::memcpy(to, cycle.bytes.data() + at * size, part * size);
    to += part * size;
    count -= part;
  }
}

DType dtype_named(std::string_view name) { return named<DType>(name, kDTypes, dtype_name, "dtype"); }
Op op_named(std::string_view name) { return named<Op>(name, kOps, op_name, "op"); }
Algorithm algorithm_named(std::string_view name) {
  return named<Algorithm>(name, kAlgorithms, algorithm_name, "algorithm");
}
WireFormat wire_format_named(std::string_view name) {
  return named<WireFormat>(name, kWireFormats, wire_format_name, "wire format");
}

void SparseModel::step(const std::vector<std::vector<float>>& inputs, bool threshold, double spars, bool residual,
                       const std::vector<uint64_t>& tensors) {
  const size_t count = inputs[0].size();
  sum.assign(count, 0);
  if (residuals.empty()) residuals.assign(inputs.size(), std::vector<float>(count, 0));
  for (size_t m = 0; m < inputs.size(); ++m) {
    std::vector<float> u = inputs[m];
    for (size_t i = 0; i < count; ++i) u[i] += residual ? residuals[m][i] : 0;
    size_t first = 0;
    for (const uint64_t length : tensors.empty() ? std::vector<uint64_t>{count} : tensors) {
      std::vector<size_t> order(length);
      std::iota(order.begin(), order.end(), first);
      const auto larger = [&](size_t a, size_t b) {
        return std::abs(u[a]) != std::abs(u[b]) ? std::abs(u[a]) > std::abs(u[b]) : a < b;
      };
      auto selected = static_cast<size_t>(std::ceil(spars * static_cast<double>(length)));
      if (threshold) {
        const auto end = std::partition(order.begin(), order.end(), [&](size_t i) { return std::abs(u[i]) >= spars; });
        selected = static_cast<size_t>(end - order.begin());
      } else if (selected < length) {
        std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(selected), order.end(), larger);
      }
      for (size_t k = 0; k < selected; ++k) {
        sum[order[k]] += u[order[k]];
        u[order[k]] = 0;
      }
      first += length;
    }
    if (residual) residuals[m] = u;
  }
}

uint64_t hash_of(const std::byte* data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<uint64_t>(data[i])) * 0x100000001b3u;
  return hash;
}

}  // namespace rondo::life
