#include "transport/control/communicator/member_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace rondo {

int MemberNames::place(int rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

// A rank that is no member is named by its world rank.
std::string MemberNames::name(int rank) const {
  const int at = place(rank);
  if (at < 0 || at == rank) return settings_.name(rank);
  return fmt::format("rank {} (world rank {}, {})", at, rank, settings_.names[static_cast<size_t>(rank)]);
}

// The first kMostNamed members stand for all.
std::string MemberNames::title() const {
  constexpr size_t kMostNamed = 8;
  const auto named = std::span(ranks_).first(std::min(ranks_.size(), kMostNamed));
  return fmt::format("communicator {:#x} (world ranks {}{})", communicator_, fmt::join(named, ", "),
                     named.size() < ranks_.size() ? ", ..." : "");
}

}  // namespace rondo
