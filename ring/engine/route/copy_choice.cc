#include "ring/engine/route/copy_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace rondo {

CopyChoice::Key CopyChoice::key(Collective collective, uint64_t bytes) { return {collective, std::bit_width(bytes)}; }

Algorithm CopyChoice::way(Collective collective, uint64_t bytes) const {
  const auto found = entries_.find(key(collective, bytes));
  if (found == entries_.end()) return Algorithm::kStaged;
  const Entry& entry = found->second;
  const bool pull = entry.trials < kTrials ? entry.trials % 2 == 1 : entry.pulled < entry.staged;
  return pull ? Algorithm::kPull : Algorithm::kStaged;
}

bool CopyChoice::measures(Collective collective, uint64_t bytes) const {
  const auto found = entries_.find(key(collective, bytes));
  return found == entries_.end() || found->second.trials < kTrials;
}

std::string CopyChoice::learn(Collective collective, uint64_t bytes, std::chrono::nanoseconds slowest) {
  const bool pulled = way(collective, bytes) == Algorithm::kPull;
  Entry& entry = entries_[key(collective, bytes)];
  std::chrono::nanoseconds& least = pulled ? entry.pulled : entry.staged;
  least = std::min(least, slowest);
  if (++entry.trials < kTrials) return {};
  const Algorithm chosen = way(collective, bytes);
  if (std::exchange(entry.told, chosen) == chosen) return {};
  const auto us = [](std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e3; };
  return fmt::format("{} of {} to {} bytes inside the island: {} from now on (staged {:.1f} us, pulled {:.1f} us)",
                     collective_name(collective), std::bit_floor(bytes), 2 * std::bit_floor(bytes) - 1,
                     algorithm_name(chosen), us(entry.staged), us(entry.pulled));
}

void CopyChoice::look_again() {
  for (auto& [of, entry] : entries_) {
    if (entry.trials < kTrials) continue;
    const std::optional<Algorithm> told = entry.told;
    entry = Entry{};
    entry.told = told;
  }
}

}  // namespace rondo
