#include "bench/loop/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "bench/loop/element.h"
#include "bench/loop/reference.h"
#include "ring/base/check.h"
#include "ring/base/hash.h"

namespace rondo::bench {
namespace {

// The same on every rank, without a table: each rank knows what all others contribute.
uint64_t random_at(int rank, uint64_t place) { return mix64(static_cast<uint64_t>(rank) * kTilePeriod + place); }

bool is_logical(const Exercise& exercise) { return exercise.dtype == DType::kBool || bench::is_logical(exercise.op); }
bool is_xor(Op op) { return op == Op::kBitXor || op == Op::kLogicalXor; }
bool is_sum(Op op) { return op == Op::kSum || op == Op::kPremulSum; }

bool is_float8(DType dtype) { return dtype_is_float(dtype) && dtype_bytes(dtype) == 1; }

// Small and not negative: 1 .. 4, or 1 .. 100 where nothing is added up; 8-bit floats 0 and 1, or 1 .. 8.
uint64_t small_integer(const Exercise& exercise, int rank, uint64_t place) {
  const bool ordered = exercise.op == Op::kMin || exercise.op == Op::kMax;
  // The sum of eight ranks has to fit the 3 bits of float8_e5m2.
  if (is_float8(exercise.dtype)) return ordered ? 1 + random_at(rank, place) % 8 : random_at(rank, place) % 2;
  uint64_t largest = ordered ? 100 : 4;
  if (exercise.op == Op::kAverage && !dtype_is_float(exercise.dtype)) {
    // The sum must fit into the type, signed too, or its average would depend on how the engine carries it.
    const uint64_t most = (uint64_t{1} << (dtype_bytes(exercise.dtype) * 8 - 1)) - 1;
    largest = std::min<uint64_t>(largest, most / static_cast<uint64_t>(exercise.world));
  }
  return largest == 0 ? 0 : 1 + random_at(rank, place) % largest;
}

// Neighboring ranks' factors cancel (2^e and 2^-e), so partial products stay small; rank 0 also brings the sign.
double float_factor(const Exercise& exercise, int rank, uint64_t place) {
  const bool alone = rank % 2 == 0 && rank + 1 == exercise.world;
  int exponent = alone ? 0 : static_cast<int>(random_at(rank / 2, place) % 3) - 1;
  if (rank % 2 == 1) exponent = -exponent;
  const bool negative = rank == 0 && (random_at(exercise.world, place) & 1) != 0;
  return std::ldexp(negative ? -1.0 : 1.0, exponent);
}

// Contributions are in units of 2^this: normal numbers, with room for 180 doublings before float32 overflows.
int unit_exponent(DType dtype) { return std::max(-60, float_format(dtype).min_exponent); }

double float_value(const Exercise& exercise, int rank, uint64_t place) {
  if (is_logical(exercise)) return static_cast<double>(random_at(rank, place) & 1);
  if (benchmark_reduces(exercise.benchmark) && exercise.op == Op::kProduct) return float_factor(exercise, rank, place);
  return std::ldexp(static_cast<double>(small_integer(exercise, rank, place)), unit_exponent(exercise.dtype));
}

uint64_t integer_value(const Exercise& exercise, int rank, uint64_t place) {
  const uint64_t random = random_at(rank, place);
  if (is_logical(exercise)) return random & 1;
  switch (exercise.op) {
    case Op::kBitAnd:
    case Op::kBitOr:
    case Op::kBitXor:
      return random;
    case Op::kProduct:
      return 2 * (random % 4) + 1;  // odd numbers never vanish modulo 2^bits
    default:
      return small_integer(exercise, rank, place);
  }
}

// How a result becomes the next operation's contribution.
enum class Feedback { kNone, kOwner, kAll };

// Out of place the input stays, so each operation does the same. all_reduce is different: each one takes the output of
// the last one (Buffers::call()).
Feedback feedback_of(const Exercise& exercise) {
  if (exercise.benchmark == Benchmark::kAllReduce) return Feedback::kAll;
  return exercise.placement == Placement::kInPlace ? Feedback::kOwner : Feedback::kNone;
}

// `values`: one contribution a rank, changed as the buffers would be. `owner`: the rank that gets this result.
template <typename Value, typename Fold>
Value run(Feedback feedback, std::vector<Value>& values, size_t owner, uint32_t operations, Fold fold) {
  Value result{};
  for (uint32_t i = 0; i < operations; ++i) {
    result = fold(values);
    if (feedback == Feedback::kNone) break;
    if (feedback == Feedback::kAll) std::fill(values.begin(), values.end(), result);
    if (feedback == Feedback::kOwner) values[owner] = result;
  }
  return result;
}

struct FloatRun {
  double value = 0;
  uint32_t exact_operations = 0;  // leading operations whose result is exact
};

FloatRun run_floats(const Exercise& exercise, int owner, uint64_t place, uint32_t operations) {
  std::vector<double> values;
  for (int rank = 0; rank < exercise.world; ++rank) values.push_back(float_value(exercise, rank, place));
  FloatRun out;
  bool exact = true;
  const auto fold = [&](const std::vector<double>& contributions) {
    const FloatResult result = fold_floats(exercise.dtype, exercise.op, contributions, kPremulScalar);
    exact = exact && result.exact;
    if (exact) ++out.exact_operations;
    return result.value;
  };
  const Feedback feedback = feedback_of(exercise);
  out.value = run(feedback, values, static_cast<size_t>(owner), operations, fold);
  if (feedback == Feedback::kNone && exact) out.exact_operations = operations;
  return out;
}

uint64_t run_integers(const Exercise& exercise, int owner, uint64_t place, uint32_t operations) {
  std::vector<uint64_t> values;
  for (int rank = 0; rank < exercise.world; ++rank) values.push_back(integer_value(exercise, rank, place));
  return run(feedback_of(exercise), values, static_cast<size_t>(owner), operations,
             [&](const std::vector<uint64_t>& v) { return fold_integers(exercise.dtype, exercise.op, v); });
}

template <typename FloatAt, typename IntegerAt>
// One period of values at every place of it, as the dtype stores them.
Tile make_tile(DType dtype, FloatAt float_at, IntegerAt integer_at) {
  const size_t width = dtype_bytes(dtype);
  Tile tile(kTilePeriod * width);
  for (uint64_t place = 0; place < kTilePeriod; ++place) {
    std::byte* out = tile.data() + place * width;
    if (dtype_is_float(dtype)) {
      store_value(dtype, out, float_at(place));
    } else {
      const uint64_t bits = integer_at(place);
      std::memcpy(out, &bits, width);  // its low bytes
    }
  }
  return tile;
}

// One period of the result after so many operations.
Tile reduced(const Exercise& exercise, int owner, uint32_t operations) {
  return make_tile(
      exercise.dtype, [&](uint64_t place) { return run_floats(exercise, owner, place, operations).value; },
      [&](uint64_t place) { return run_integers(exercise, owner, place, operations); });
}

// Operations, of `operations`, whose results are exact at every place, for the worst owner.
uint32_t exact_operations(const Exercise& exercise, uint32_t operations) {
  if (!benchmark_reduces(exercise.benchmark) || !dtype_is_float(exercise.dtype)) return operations;
  uint32_t least = operations;
  const int owners = feedback_of(exercise) == Feedback::kOwner ? exercise.world : 1;
  for (int owner = 0; owner < owners; ++owner) {
    for (uint64_t place = 0; place < kTilePeriod && least > 0; ++place) {
      least = std::min(least, run_floats(exercise, owner, place, least).exact_operations);
    }
  }
  return least;
}

double rounding_unit(DType dtype) { return std::ldexp(1.0, -float_format(dtype).fraction_bits - 1); }

// The largest error, relative to a value, with which a batch still proves something.
double allowed_error(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 1e-2;
    case DType::kBfloat16:
      return 5e-2;
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return 0.25;
    case DType::kFloat32:
      return 1e-5;
    default:
      return 1e-12;
  }
}

// Before a sum, growing by `world` each time, leaves the type: 180 doublings from 2^-60 on; float16 has 26, as 3 are
// for the contributions themselves.
uint32_t growth_limit(const Exercise& exercise) {
  if (exercise.world < 2 || !is_sum(exercise.op)) return kMaxBatch;
  const int exponents = float_format(exercise.dtype).max_exponent - unit_exponent(exercise.dtype);
  const double doublings = std::min(180, exponents - 3);
  const double limit = doublings / std::log2(static_cast<double>(exercise.world));
  return static_cast<uint32_t>(std::clamp(limit, 1.0, static_cast<double>(kMaxBatch)));
}

uint32_t max_integer_operations(const Exercise& exercise) {
  const int zeros = std::countr_zero(static_cast<uint32_t>(exercise.world));
  // Each operation shifts the sum by `zeros` bits: at least half of them stay.
  if (exercise.op != Op::kSum || exercise.dtype == DType::kBool || zeros == 0) return kMaxBatch;
  const uint32_t half = static_cast<uint32_t>(dtype_bytes(exercise.dtype)) * 4;
  return std::max(1u, half / static_cast<uint32_t>(zeros));
}

}  // namespace

Tile contribution(const Exercise& exercise, int rank) {
  return make_tile(
      exercise.dtype, [&](uint64_t place) { return float_value(exercise, rank, place); },
      [&](uint64_t place) { return integer_value(exercise, rank, place); });
}

// Blocks begin at multiples of count in the buffer, so a block's phase in the tile follows from its rank.
std::vector<Region> expected_output(const Exercise& exercise, const Extent& extent, int rank, uint32_t operations) {
  const uint64_t count = extent.count;
  const uint64_t own_phase = static_cast<uint64_t>(rank) * count % kTilePeriod;
  const int world = exercise.world;
  std::vector<Region> regions;
  const auto from_every_rank = [&](uint64_t phase) {
    for (int source = 0; source < world; ++source) {
      regions.push_back({static_cast<uint64_t>(source) * count, count, phase, contribution(exercise, source)});
    }
  };
  switch (exercise.benchmark) {
    case Benchmark::kAllReduce:
      return {{0, count, 0, reduced(exercise, rank, operations)}};
    case Benchmark::kReduceScatter:
      return {{0, count, own_phase, reduced(exercise, rank, operations)}};
    case Benchmark::kReduce:
      if (rank == exercise.root) regions.push_back({0, count, 0, reduced(exercise, rank, operations)});
      return regions;
    case Benchmark::kAllGather:
      from_every_rank(0);
      return regions;
    case Benchmark::kGather:
      if (rank == exercise.root) from_every_rank(0);
      return regions;
    case Benchmark::kBroadcast:
      return {{0, count, 0, contribution(exercise, exercise.root)}};
    case Benchmark::kScatter:
      return {{0, count, own_phase, contribution(exercise, exercise.root)}};
    case Benchmark::kAllToAll:
      from_every_rank(own_phase);
      return regions;
    case Benchmark::kSendRecv:
      return {{0, count, 0, contribution(exercise, (rank + world - 1) % world)}};
    case Benchmark::kPingPong:
      return {{0, count, 0, contribution(exercise, partner_of(rank))}};
    case Benchmark::kBurst:
      return {{0, count * kBurstMessages, 0, contribution(exercise, partner_of(rank))}};
    case Benchmark::kBarrier:
      return {};
  }
  RONDO_CHECK(false, "an unknown benchmark");
}

uint32_t max_operations(const Exercise& exercise) {
  if (!benchmark_reduces(exercise.benchmark)) return kMaxBatch;
  // An even number of equal values is 0 under xor, and stays 0.
  if (is_xor(exercise.op) && exercise.world % 2 == 0) return 1;
  if (!dtype_is_float(exercise.dtype)) return max_integer_operations(exercise);
  const uint32_t limit = growth_limit(exercise);
  const uint32_t exact = exact_operations(exercise, limit);
  if (exact == limit || !(is_sum(exercise.op) || exercise.op == Op::kAverage)) return std::max(1u, exact);
  const double rounded = allowed_error(exercise.dtype) / (exercise.world * rounding_unit(exercise.dtype));
  return std::max({1u, exact, std::min(limit, static_cast<uint32_t>(rounded))});
}

// Every operation rounds at most `world` times (world - 1 additions and a scaling), by half a unit at most; all terms
// are positive, so errors only add up.
double tolerance(const Exercise& exercise, uint32_t operations) {
  if (exact_operations(exercise, operations) == operations) return 0;
  return 1.01 * operations * exercise.world * rounding_unit(exercise.dtype);
}

}  // namespace rondo::bench
