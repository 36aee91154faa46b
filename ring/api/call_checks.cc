#include <fmt/format.h>

#include <algorithm>

#include "rondo/calls.h"
#include "rondo/error.h"

namespace rondo::call_checks {

// Checks of the calls with spans (rondo/calls.h), which know the buffers' lengths. The templates there are in users'
// programs; texts are built here, once.
void refuse_length(const char* call, int rank, const char* which, uint64_t has, uint64_t should) {
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("{} on rank {}: the {} has {} elements instead of {}", call, rank, which, has, should));
}

void refuse_unmatched(int rank) {
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("mrecv on rank {}: matched is 0; it must be Message::matched of a matched probe", rank));
}

// Every block lies in the buffer; blocks without displacements fill it exactly. Compared without sums that could wrap:
// begin <= has comes first. Lists of unequal lengths are refused later, by the engine.
void check_blocks(const char* call, int rank, const char* which, uint64_t has, std::span<const uint64_t> counts,
                  std::span<const uint64_t> displacements) {
  if (!displacements.empty() && displacements.size() != counts.size()) return;
  uint64_t end = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    const uint64_t begin = displacements.empty() ? end : displacements[r];
    if (begin > has || counts[r] > has - begin) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("{} on rank {}: the {} has {} elements, and rank {}'s block of {} begins at {}", call,
                                  rank, which, has, r, counts[r], begin));
    }
    end = displacements.empty() ? begin + counts[r] : std::max(end, begin + counts[r]);
  }
  if (displacements.empty() && end != has) refuse_length(call, rank, which, has, end);
}

}  // namespace rondo::call_checks
