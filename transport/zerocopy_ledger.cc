#include "transport/zerocopy_ledger.h"

#include "ring/base/check.h"

namespace rondo {

void ZerocopyLedger::sent(uint64_t begin) {
  RONDO_CHECK(!full(), "more sends are pending than the ledger holds");
  at(next_++) = {begin, false};
}

bool ZerocopyLedger::completed(uint32_t first, uint32_t last, How how) {
  const uint32_t pending = next_ - first_;
  const uint32_t begin = first - first_;  // modulo 2^32, as the numbers are
  const uint32_t end = last - first_;
  if (begin > end || end >= pending) return false;
  for (uint32_t i = begin; i <= end; ++i) {
    if (at(first_ + i).done) return false;
  }
  for (uint32_t i = begin; i <= end; ++i) at(first_ + i).done = true;
  copied_in_a_row_ = how == How::kCopied ? copied_in_a_row_ + (end - begin + 1) : 0;
  while (!empty() && at(first_).done) ++first_;
  return true;
}

}  // namespace rondo
