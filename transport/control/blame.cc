#include "transport/control/blame.h"

#include <fmt/format.h>

#include <algorithm>

namespace rondo {
namespace {

// Ranks that one sentence names; a job of a thousand has no longer one.
constexpr size_t kMostNamed = 8;

std::string why_text(const Blame::Rank& rank) {
  if (rank.why == Blame::Why::kLate) {
    return fmt::format("{}, which has not begun it {} after the first rank{}{}", rank.name, time_text(rank.ms),
                       rank.meanwhile.empty() ? "" : ": it waits in ", rank.meanwhile);
  }
  return fmt::format("{}, which made no progress for {}: its process was stopped, or its core was taken", rank.name,
                     time_text(rank.ms));
}

// Decimal units, as busbw has.
std::string rate_text(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.3g} GB/s", bytes_per_second * 1e-9);
  if (bytes_per_second >= 1e6) return fmt::format("{:.3g} MB/s", bytes_per_second * 1e-6);
  return fmt::format("{:.3g} KB/s", bytes_per_second * 1e-3);
}

std::string link_text(const Blame::Link& link) {
  const auto now = static_cast<double>(link.rate.bytes_per_second);
  const double share = link.rate.best > 0 ? 100 * now / static_cast<double>(link.rate.best) : 100;
  return fmt::format("the link from {} to {}, which moves {}, {:.2g} % of its best rate", link.from, link.to,
                     rate_text(now), std::min(share, 100.0));
}

}  // namespace

bool Blame::same_cause(const Blame& other) const {
  const auto same_rank = [](const Rank& one, const Rank& two) { return one.rank == two.rank && one.why == two.why; };
  const auto same_link = [](const Link& one, const Link& two) { return one.from == two.from && one.to == two.to; };
  return std::equal(ranks.begin(), ranks.end(), other.ranks.begin(), other.ranks.end(), same_rank) &&
         std::equal(links.begin(), links.end(), other.links.begin(), other.links.end(), same_link);
}

// tools/trace/blame.py has the same words.
std::string Blame::text() const {
  if (empty()) return "";
  std::string whom;
  const auto add = [&whom](const std::string& text) { whom += (whom.empty() ? "" : "; ") + text; };
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) add(why_text(ranks[i]));
  if (ranks.size() > kMostNamed) add(fmt::format("and {} more ranks", ranks.size() - kMostNamed));
  for (const Link& link : links) add(link_text(link));
  return fmt::format("the ranks waited {} in collective call {}, {}, for {}", time_text(waited_ms), number, call, whom);
}

std::string rank_name(int rank, const std::vector<std::string>& names) {
  if (rank < 0 || rank >= static_cast<int>(names.size())) return fmt::format("rank {}", rank);
  return fmt::format("rank {} ({})", rank, names[static_cast<size_t>(rank)]);
}

std::string time_text(int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  return fmt::format("{:.3g} s", static_cast<double>(ms) * 1e-3);
}

}  // namespace rondo
