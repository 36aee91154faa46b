#include "tests/support/collective_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ring/base/hash.h"
#include "ring/base/types.h"

namespace rondo::testing {
namespace {

// Bytes before and behind each buffer that must stay as they are.
constexpr size_t kGuard = 256;
constexpr std::byte kGuardByte{0xA5};

float half_to_float(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                           : exponent == 31 ? INFINITY
                                            : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>((half & 0x8000) != 0 ? -magnitude : magnitude);
}

// Only for values that are exact in 16 bits.
uint16_t float_to_half(double value) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    if (half_to_float(static_cast<uint16_t>(bits)) == static_cast<float>(value)) return static_cast<uint16_t>(bits);
  }
  return 0xffff;
}

const std::vector<uint16_t>& small_halves() {
  static const std::vector<uint16_t> table = [] {
    std::vector<uint16_t> made;
    for (int i = 0; i <= 512; ++i) made.push_back(float_to_half(i));
    return made;
  }();
  return table;
}

template <typename T>
void put(std::byte* memory, T value) {
  std::memcpy(memory, &value, sizeof value);
}
template <typename T>
T take(const std::byte* memory) {
  T value;
  std::memcpy(&value, memory, sizeof value);
  return value;
}

// The value that rank `rank` contributes at element `index` of block `block`: small whole numbers, so that every fold
// of up to 64 ranks is exact in every dtype (8 bits: sums up to 64 * 1, products up to 2^6).
double value_of(const CollectiveCase& what, int rank, uint64_t block, uint64_t index) {
  const uint64_t mixed =
      mix64(what.seed ^ mix64(static_cast<uint64_t>(rank) + 1) ^ mix64(block * 1000003 + index + 77));
  if (what.dtype == DType::kBool) return static_cast<double>(mixed % 2);
  if (!collective_reduces(what.collective)) return static_cast<double>(mixed % 100);
  switch (what.op) {
    case Op::kProduct:
      return mixed % static_cast<uint64_t>(what.world) < 4 && mixed % 3 == 0 && rank < 6 ? 2 : 1;
    case Op::kSum:
      return static_cast<double>(mixed % (what.world > 16 ? 2 : 7));
    case Op::kAverage:
      return static_cast<double>(mixed % 2) * (what.world > 11 ? 1 : what.world);
    case Op::kPremulSum:
      return static_cast<double>(mixed % 2);
    default:
      return static_cast<double>(mixed % 100);
  }
}

double fold(const CollectiveCase& what, double a, double b) {
  const auto x = static_cast<int64_t>(a);
  const auto y = static_cast<int64_t>(b);
  const bool is_bool = what.dtype == DType::kBool;
  switch (what.op) {
    case Op::kSum:
    case Op::kAverage:
    case Op::kPremulSum:
      return is_bool ? std::min(1.0, a + b) : a + b;
    case Op::kProduct:
      return a * b;
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kBitAnd:
      return static_cast<double>(x & y);
    case Op::kBitOr:
      return static_cast<double>(x | y);
    case Op::kBitXor:
      return static_cast<double>(x ^ y);
    case Op::kLogicalAnd:
      return a != 0 && b != 0;
    case Op::kLogicalOr:
      return a != 0 || b != 0;
    case Op::kLogicalXor:
      return (a != 0) != (b != 0);
  }
  return 0;
}

bool is_logical(Op op) { return op == Op::kLogicalAnd || op == Op::kLogicalOr || op == Op::kLogicalXor; }

// Two elements per rank of the premultiplied sum's factor stay exact.
double factor_of(int rank) { return static_cast<double>(rank % 3 + 1); }

double reduced(const CollectiveCase& what, uint64_t block, uint64_t index) {
  double result = 0;
  for (int r = 0; r < what.world; ++r) {
    double value = value_of(what, r, block, index);
    if (what.op == Op::kPremulSum) value *= factor_of(r);
    if (is_logical(what.op) && what.world > 1) value = value != 0;  // alone, a value is only copied
    result = r == 0 ? value : fold(what, result, value);
  }
  if (what.op == Op::kAverage) {
    result /= what.world;
    if (!dtype_is_float(what.dtype)) result = std::trunc(result);
  }
  return result;
}

}  // namespace

void write_element(std::byte* memory, DType dtype, double value) {
  switch (dtype) {
    case DType::kInt8:
      return put(memory, static_cast<int8_t>(value));
    case DType::kUint8:
      return put(memory, static_cast<uint8_t>(value));
    case DType::kInt16:
      return put(memory, static_cast<int16_t>(value));
    case DType::kUint16:
      return put(memory, static_cast<uint16_t>(value));
    case DType::kInt32:
      return put(memory, static_cast<int32_t>(value));
    case DType::kUint32:
      return put(memory, static_cast<uint32_t>(value));
    case DType::kInt64:
      return put(memory, static_cast<int64_t>(value));
    case DType::kUint64:
      return put(memory, static_cast<uint64_t>(value));
    case DType::kFloat16:
      return put(memory, small_halves().at(static_cast<size_t>(value)));
    case DType::kBfloat16:
      return put(memory, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    case DType::kFloat32:
      return put(memory, static_cast<float>(value));
    case DType::kFloat64:
      return put(memory, value);
    case DType::kBool:
      return put(memory, static_cast<uint8_t>(value != 0));
  }
}

double read_element(const std::byte* memory, DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return take<int8_t>(memory);
    case DType::kUint8:
      return take<uint8_t>(memory);
    case DType::kInt16:
      return take<int16_t>(memory);
    case DType::kUint16:
      return take<uint16_t>(memory);
    case DType::kInt32:
      return take<int32_t>(memory);
    case DType::kUint32:
      return take<uint32_t>(memory);
    case DType::kInt64:
      return static_cast<double>(take<int64_t>(memory));
    case DType::kUint64:
      return static_cast<double>(take<uint64_t>(memory));
    case DType::kFloat16:
      return half_to_float(take<uint16_t>(memory));
    case DType::kBfloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(take<uint16_t>(memory)) << 16);
    case DType::kFloat32:
      return take<float>(memory);
    case DType::kFloat64:
      return take<double>(memory);
    case DType::kBool:
      return take<uint8_t>(memory);
  }
  return NAN;
}

std::string CollectiveCase::describe() const {
  return fmt::format("{}{} world {} root {} count {} {} {}{} misaligned by {} seed {}", collective_name(collective),
                     counts.empty() ? "" : "_v", world, root, count, dtype_name(dtype), op_name(op),
                     in_place ? " in place" : "", misalign, seed);
}

CollectiveRank::CollectiveRank(const CollectiveCase& what, int rank, std::pmr::memory_resource* memory)
    : case_(what), rank_(rank), element_bytes_(dtype_bytes(what.dtype)), input_memory_(memory), output_memory_(memory) {
  const size_t in = input_elements() * element_bytes_;
  const size_t out = output_elements() * element_bytes_;
  input_memory_.assign(in + 2 * kGuard + what.misalign, kGuardByte);
  output_memory_.assign(std::max(in, out) + 2 * kGuard + what.misalign, kGuardByte);
  input_ = input_memory_.data() + kGuard + what.misalign;
  output_ = output_memory_.data() + kGuard + what.misalign;
  if (what.collective == Collective::kAllToAll && !what.counts.empty()) {
    // Rank r sends counts[(r + d) % world] elements to rank d.
    for (int d = 0; d < what.world; ++d) {
      mine_.push_back(what.counts[static_cast<size_t>((rank + d) % what.world)]);
      theirs_.push_back(what.counts[static_cast<size_t>((d + rank) % what.world)]);
    }
  }
  const bool inside = what.in_place && what.collective != Collective::kAllToAll;
  if (inside && (what.collective == Collective::kAllGather || what.collective == Collective::kGather)) {
    if (what.collective == Collective::kAllGather || rank == what.root) input_ = output_ + in_place_offset();
  } else if (inside && (what.collective == Collective::kReduceScatter || what.collective == Collective::kScatter)) {
    input_ = output_memory_.data() + kGuard + what.misalign;
    output_ = what.collective == Collective::kReduceScatter || rank == what.root ? input_ + in_place_offset() : input_;
  } else if (inside || what.collective == Collective::kBroadcast) {
    input_ = output_;
  }
  uint64_t at = 0;
  const auto fill = [&](uint64_t block, uint64_t elements) {
    for (uint64_t i = 0; i < elements; ++i, ++at) {
      write_element(input_ + at * element_bytes_, what.dtype, value_of(what, rank, block, i));
    }
  };
  const auto world = static_cast<uint64_t>(what.world);
  switch (what.collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      if (input_elements() == 0) break;
      for (uint64_t b = 0; b < world; ++b) fill(b, what.counts.empty() ? what.count : what.counts[b]);
      break;
    case Collective::kAllToAll:
      for (uint64_t b = 0; b < world; ++b) fill(b, what.counts.empty() ? what.count : mine_[b]);
      break;
    default:
      fill(0, input_elements());
  }
  original_.assign(output_memory_.begin(), output_memory_.end());
}

uint64_t CollectiveRank::in_place_offset() const {
  uint64_t offset = 0;
  for (int r = 0; r < rank_; ++r) offset += case_.counts.empty() ? case_.count : case_.counts[static_cast<size_t>(r)];
  return offset * element_bytes_;
}

namespace {

uint64_t sum_of(const std::vector<uint64_t>& counts) {
  uint64_t sum = 0;
  for (const uint64_t count : counts) sum += count;
  return sum;
}

}  // namespace

uint64_t CollectiveRank::input_elements() const {
  const auto own = static_cast<size_t>(rank_);
  const uint64_t block = case_.counts.empty() ? case_.count : case_.counts[own];
  const uint64_t all = case_.counts.empty() ? case_.count * static_cast<uint64_t>(case_.world) : sum_of(case_.counts);
  switch (case_.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return case_.count;
    case Collective::kAllGather:
    case Collective::kGather:
      return block;
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return all;
    case Collective::kScatter:
      return rank_ == case_.root ? all : 0;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

uint64_t CollectiveRank::output_elements() const {
  const auto own = static_cast<size_t>(rank_);
  const uint64_t block = case_.counts.empty() ? case_.count : case_.counts[own];
  const uint64_t all = case_.counts.empty() ? case_.count * static_cast<uint64_t>(case_.world) : sum_of(case_.counts);
  switch (case_.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return case_.count;
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return all;
    case Collective::kGather:
      return rank_ == case_.root ? all : 0;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return block;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

Communicator::Call CollectiveRank::call() const {
  Communicator::Call call;
  call.collective = case_.collective;
  call.input = input_;
  call.output = output_;
  call.count = case_.counts.empty() ? case_.count : case_.counts[static_cast<size_t>(rank_)];
  call.dtype = case_.dtype;
  call.op = case_.op;
  call.root = collective_has_root(case_.collective) ? case_.root : -1;
  call.uneven = !case_.counts.empty();
  call.options.scalar = factor_of(rank_);
  if (!call.uneven) return call;
  const bool all_to_all = case_.collective == Collective::kAllToAll;
  call.input_counts = all_to_all ? std::span<const uint64_t>(mine_) : std::span<const uint64_t>(case_.counts);
  call.output_counts = all_to_all ? std::span<const uint64_t>(theirs_) : std::span<const uint64_t>(case_.counts);
  return call;
}

bool CollectiveRank::expects_output() const {
  const bool root_only = case_.collective == Collective::kReduce || case_.collective == Collective::kGather;
  return !root_only || rank_ == case_.root;
}

double CollectiveRank::expected(uint64_t element) const {
  const auto own = static_cast<uint64_t>(rank_);
  switch (case_.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduced(case_, 0, element);
    case Collective::kBroadcast:
      return value_of(case_, case_.root, 0, element);
    case Collective::kReduceScatter:
      return reduced(case_, own, element);
    case Collective::kScatter:
      return value_of(case_, case_.root, own, element);
    default:
      break;
  }
  // Blocks by source.
  uint64_t source = 0;
  const auto block = [&](uint64_t s) {
    if (case_.counts.empty()) return case_.count;
    return case_.collective == Collective::kAllToAll ? theirs_[s] : case_.counts[s];
  };
  while (element >= block(source)) element -= block(source++);
  const uint64_t part = case_.collective == Collective::kAllToAll ? own : 0;
  return value_of(case_, static_cast<int>(source), part, element);
}

std::string CollectiveRank::check() const {
  const uint64_t elements = expects_output() ? output_elements() : 0;
  for (uint64_t i = 0; i < elements; ++i) {
    const double got = read_element(output_ + i * element_bytes_, case_.dtype);
    const double want = expected(i);
    // 1/world is not exact in every world: one rounding of the product then differs from the quotient's.
    const double tolerance = case_.op == Op::kAverage && dtype_is_float(case_.dtype)
                                 ? std::abs(want) * (element_bytes_ == 2 ? 0.01 : 1e-6)
                                 : 0;
    if (!(std::abs(got - want) <= tolerance)) {
      return fmt::format("{} rank {}: element {} of {} is {}, should be {}", case_.describe(), rank_, i, elements, got,
                         want);
    }
  }
  // What is not output must be as it was, the memory around the buffer included. In place, input and output share it.
  const auto begin = static_cast<size_t>(output_ - output_memory_.data());
  const size_t end = begin + elements * element_bytes_;
  const bool scatters_in_place = case_.in_place && case_.collective == Collective::kReduceScatter;
  for (size_t i = 0; i < output_memory_.size() && !scatters_in_place; ++i) {
    if ((i < begin || i >= end) && output_memory_[i] != original_[i]) {
      return fmt::format("{} rank {}: byte {} beside the output was written", case_.describe(), rank_,
                         static_cast<int64_t>(i) - static_cast<int64_t>(begin));
    }
  }
  return "";
}

std::vector<std::byte> CollectiveRank::output() const {
  if (!expects_output()) return {};
  return {output_, output_ + output_elements() * element_bytes_};
}

}  // namespace rondo::testing
