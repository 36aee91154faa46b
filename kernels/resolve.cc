#include "kernels/resolve.h"

namespace rondo {

namespace {

// Averages of narrow types scale each contribution, since the sum could leave the type's range (rows/row.h).
bool is_narrow(DType dtype) {
  return baseline::kKernels.rows[static_cast<int>(dtype)]->folds[static_cast<int>(Fold::kScaledSum)].blocks != nullptr;
}

Fold fold_of(const CombineSpec& spec, bool scaled, bool finished) {
  switch (spec.op) {
    case Op::kAverage:
      return scaled ? Fold::kScaledSum : finished ? Fold::kDividedSum : Fold::kSum;
    case Op::kPremulSum:
      return scaled ? Fold::kScaledRoundedSum : Fold::kSum;
    default:
      // Op and Fold list these in the same order up to kAverage, which Fold has not.
      return static_cast<Fold>(static_cast<int>(spec.op) - (spec.op > Op::kAverage ? 1 : 0));
  }
}
static_assert(static_cast<int>(Fold::kMax) == static_cast<int>(Op::kMax));
static_assert(static_cast<int>(Fold::kBitAnd) == static_cast<int>(Op::kBitAnd) - 1);
static_assert(static_cast<int>(Fold::kLogicalXor) == static_cast<int>(Op::kLogicalXor) - 1);

}  // namespace

// Flags of sources that do not exist are dropped: the shift below is defined, since there is at least one source.
ResolvedMove resolve(const CombineSpec& spec, const CombineMove& move) {
  const uint64_t scaled = move.scaled & (~uint64_t{0} >> (64 - move.source_count));
  const bool scales = scaled != 0 && combine_scales(spec);
  const bool finishes = move.finish && combine_finishes(spec);
  if (move.source_count == 1 && !scales && !finishes) return {.copies = true, .scaled = scaled};
  return {.fold = fold_of(spec, scales, finishes), .scaled = scaled};
}

// In a world of one an average is the contribution itself, bit for bit.
bool combine_scales(const CombineSpec& spec) {
  if (spec.op == Op::kPremulSum) return true;
  return spec.op == Op::kAverage && is_narrow(spec.dtype) && spec.world > 1;
}

bool combine_finishes(const CombineSpec& spec) {
  return spec.op == Op::kAverage && !is_narrow(spec.dtype) && spec.world > 1;
}

}  // namespace rondo
