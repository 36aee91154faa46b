#include "tests/support/collective_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ring/base/hash.h"
#include "ring/base/types.h"
#include "tests/support/reference.h"

namespace rondo::testing {
namespace {

// Bytes before and behind each buffer that must stay as they are.
constexpr size_t kGuard = 256;
constexpr std::byte kGuardByte{0xA5};

// The value that rank `rank` contributes at element `index` of block `block`: small whole numbers, so that every fold
// of up to 64 ranks is exact in every dtype. Integers of 8 bits hold sums up to 64 * 1 and products up to 2^6, floats
// of 8 bits the whole numbers up to 8.
uint64_t value_of(const CollectiveCase& what, int rank, uint64_t block, uint64_t index) {
  const uint64_t mixed =
      mix64(what.seed ^ mix64(static_cast<uint64_t>(rank) + 1) ^ mix64(block * 1000003 + index + 77));
  const auto world = static_cast<uint64_t>(what.world);
  const bool float8 = dtype_is_float(what.dtype) && dtype_bytes(what.dtype) == 1;
  const uint64_t values = float8 ? 8 : 100;
  if (what.dtype == DType::kBool) return mixed % 2;
  if (!collective_reduces(what.collective)) return mixed % values;
  switch (what.op) {
    case Op::kProduct:
      return mixed % world < 4 && mixed % 3 == 0 && rank < 6 ? 2 : 1;
    case Op::kSum:
      if (float8) return rank < 8 ? mixed % 2 : 0;
      return mixed % (world > 16 ? 2 : 7);
    case Op::kAverage:
      if (float8 && world > 8) return rank == 0 ? mixed % 2 * 64 : 0;
      return mixed % 2 * (world > 11 ? 1 : world);
    case Op::kPremulSum:
      return float8 && rank > 2 ? 0 : mixed % 2;  // factors 2, 3, 2
    default:
      return mixed % values;
  }
}

// Never 1, by which a rank that was not scaled would go unseen.
uint64_t factor_of(int rank) { return static_cast<uint64_t>(rank % 2 + 2); }

// Relative: 1/world is not exact in every world, so that one rounding of the product differs from the quotient's.
double tolerance_of(const CollectiveCase& what) {
  if (what.op != Op::kAverage || !dtype_is_float(what.dtype)) return 0;
  return std::max(1e-6, std::ldexp(1.0, -float_format(what.dtype).fraction_bits));
}

// The reduction of the first ranks' values.
double reduced(const CollectiveCase& what, uint64_t block, uint64_t index, int first) {
  const DType folded_as = what.dtype == DType::kBool ? DType::kBool : DType::kUint64;
  uint64_t result = 0;
  for (int r = 0; r < first; ++r) {
    uint64_t value = value_of(what, r, block, index);
    if (what.op == Op::kPremulSum) value *= factor_of(r);
    if (is_logical(what.op) && first > 1) value = value != 0;  // alone, a value is only copied
    result = r == 0 ? value : fold_integers(folded_as, what.op, result, value);
  }
  if (what.op != Op::kAverage) return static_cast<double>(result);
  const double average = static_cast<double>(result) / what.world;
  return dtype_is_float(what.dtype) ? average : std::trunc(average);
}

}  // namespace

std::string CollectiveCase::describe() const {
  return fmt::format("{}{} world {} root {} count {} {} {}{} misaligned by {} seed {}", collective_name(collective),
                     counts.empty() ? "" : "_v", world, root, count, dtype_name(dtype), op_name(op),
                     in_place ? " in place" : "", misalign, seed);
}

CollectiveRank::CollectiveRank(const CollectiveCase& what, int rank, std::pmr::memory_resource* memory)
    : case_(what), rank_(rank), element_bytes_(dtype_bytes(what.dtype)), input_memory_(memory), output_memory_(memory) {
  const size_t in = elements().input * element_bytes_;
  const size_t out = elements().output * element_bytes_;
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
      const auto value = static_cast<double>(value_of(what, rank, block, i));
      store_value(what.dtype, input_ + at * element_bytes_, value);
    }
  };
  const auto world = static_cast<uint64_t>(what.world);
  switch (what.collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      if (elements().input == 0) break;
      for (uint64_t b = 0; b < world; ++b) fill(b, what.counts.empty() ? what.count : what.counts[b]);
      break;
    case Collective::kAllToAll:
      for (uint64_t b = 0; b < world; ++b) fill(b, what.counts.empty() ? what.count : mine_[b]);
      break;
    default:
      fill(0, elements().input);
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

CollectiveRank::Elements CollectiveRank::elements() const {
  const bool even = case_.counts.empty();
  const uint64_t block = even ? case_.count : case_.counts[static_cast<size_t>(rank_)];
  const uint64_t all = even ? case_.count * static_cast<uint64_t>(case_.world) : sum_of(case_.counts);
  const uint64_t all_at_root = rank_ == case_.root ? all : 0;
  switch (case_.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExscan:
      return {case_.count, case_.count};
    case Collective::kAllGather:
      return {block, all};
    case Collective::kGather:
      return {block, all_at_root};
    case Collective::kReduceScatter:
      return {all, block};
    case Collective::kScatter:
      return {all_at_root, block};
    case Collective::kAllToAll:
      return {all, all};
    case Collective::kBarrier:
      break;
  }
  return {};
}

Call CollectiveRank::call() const {
  Call call;
  call.collective = case_.collective;
  call.input = input_;
  call.output = output_;
  call.count = case_.counts.empty() ? case_.count : case_.counts[static_cast<size_t>(rank_)];
  call.dtype = case_.dtype;
  call.op = case_.op;
  call.root = collective_has_root(case_.collective) ? case_.root : -1;
  call.uneven = !case_.counts.empty();
  call.options.scalar = static_cast<double>(factor_of(rank_));
  if (!call.uneven) return call;
  const bool all_to_all = case_.collective == Collective::kAllToAll;
  call.input_counts = all_to_all ? std::span<const uint64_t>(mine_) : std::span<const uint64_t>(case_.counts);
  call.output_counts = all_to_all ? std::span<const uint64_t>(theirs_) : std::span<const uint64_t>(case_.counts);
  return call;
}

bool CollectiveRank::expects_output() const {
  if (case_.collective == Collective::kExscan) return rank_ > 0;
  const bool root_only = case_.collective == Collective::kReduce || case_.collective == Collective::kGather;
  return !root_only || rank_ == case_.root;
}

double CollectiveRank::expected(uint64_t element) const {
  const auto own = static_cast<uint64_t>(rank_);
  switch (case_.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduced(case_, 0, element, case_.world);
    case Collective::kScan:
      return reduced(case_, 0, element, rank_ + 1);
    case Collective::kExscan:
      return reduced(case_, 0, element, rank_);
    case Collective::kBroadcast:
      return static_cast<double>(value_of(case_, case_.root, 0, element));
    case Collective::kReduceScatter:
      return reduced(case_, own, element, case_.world);
    case Collective::kScatter:
      return static_cast<double>(value_of(case_, case_.root, own, element));
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
  return static_cast<double>(value_of(case_, static_cast<int>(source), part, element));
}

std::string CollectiveRank::check() const {
  const double tolerance = tolerance_of(case_);
  const uint64_t count = expects_output() ? elements().output : 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double got = load_value(case_.dtype, output_ + i * element_bytes_);
    const double want = expected(i);
    if (!(std::abs(got - want) <= std::abs(want) * tolerance)) {
      return fmt::format("{} rank {}: element {} of {} is {}, should be {}", case_.describe(), rank_, i, count, got,
                         want);
    }
  }
  // What is not output must be as it was, the memory around the buffer included. In place, input and output share it.
  const auto begin = static_cast<size_t>(output_ - output_memory_.data());
  const size_t end = begin + count * element_bytes_;
  const bool scatters_in_place = case_.in_place && case_.collective == Collective::kReduceScatter;
  for (size_t i = 0; i < output_memory_.size() && !scatters_in_place; ++i) {
    if ((i < begin || i >= end) && output_memory_[i] != original_[i]) {
      return fmt::format("{} rank {}: byte {} beside the output was written", case_.describe(), rank_,
                         static_cast<int64_t>(i) - static_cast<int64_t>(begin));
    }
  }
  return "";
}

void CollectiveRank::refill() {
  std::fill_n(input_, elements().input * element_bytes_, std::byte{0x55});
  std::fill_n(output_, elements().output * element_bytes_, std::byte{0x55});
}

std::vector<std::byte> CollectiveRank::output() const {
  if (!expects_output()) return {};
  return {output_, output_ + elements().output * element_bytes_};
}

}  // namespace rondo::testing
