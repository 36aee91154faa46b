#include "ring/engine/route/trials.h"

#include <fmt/format.h>

#include <algorithm>

namespace rondo {
namespace {

// In hundredths. Whole numbers: every rank must come to the same end, whatever mode its thread's floats are in.
constexpr uint64_t kDropped = 150, kHysteresis = 95, kOff = 130;
// Where most calls do not count, so many are timed at most.
constexpr int kMostTimed = 4 * Trials::kBlock * Trials::kBlocks;
// A way is judged only after so many of its calls have counted.
constexpr size_t kFewestCosts = 3;
// Calls without trials after trials of which no call counted.
constexpr uint64_t kRest = 1024;

// Whether others read what such a call writes from this rank's stores: posts, staging memory, slots of links.
bool stores(Algorithm algorithm) { return algorithm != Algorithm::kPull && algorithm != Algorithm::kRegistered; }

std::string way_text(const Way& way) {
  return std::string(algorithm_name(way.algorithm)) + (way.streamed ? " past the caches" : "");
}

}  // namespace

// A low quantile, not the mean: disturbances only ever make a call slower.
uint64_t Trials::Entry::quarter_ns() const {
  if (costs_ns.empty()) return UINT64_MAX;
  std::vector<uint64_t> sorted = costs_ns;
  const auto quarter = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 4);
  std::nth_element(sorted.begin(), quarter, sorted.end());
  return *quarter;
}

uint64_t Trials::Entry::least_ns() const { return *std::min_element(costs_ns.begin(), costs_ns.end()); }

Trials::Trials(std::span<const Algorithm> ways, Stores stores, bool streamed, Patience limits)
    : ways_(ways.begin(), ways.end()), stores_(stores), limits_(limits) {
  try_all(streamed);
}

Trials::Next Trials::next() const {
  if (stage_ == Stage::kSettled) return {settled_, looks(), stage_, round_};
  if (stage_ == Stage::kResting) return {settled_, false, stage_, round_};
  size_t turn = stage_calls_ / kBlock % alive();
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return !e.dropped && turn-- == 0; });
  return {entry->way, true, stage_, round_};
}

void Trials::began() {
  ++calls_;
  ++stage_calls_;
  if (stage_ == Stage::kResting && stage_calls_ == kRest) try_all(settled_.streamed);
}

void Trials::learn(const Next& call, std::optional<uint64_t> cost_ns) {
  // The call began in an earlier stage, whose entries are gone.
  if (call.round != round_) return;
  if (stage_ == Stage::kSettled) {
    if (!cost_ns) return;
    off_ = 100 * *cost_ns > kOff * settled_ns_ || kOff * *cost_ns < 100 * settled_ns_ ? off_ + 1 : 0;
    return;
  }
  for (Entry& entry : entries_) {
    if (!(entry.way == call.way)) continue;
    ++entry.timed;
    if (cost_ns) entry.costs_ns.push_back(*cost_ns);
  }
}

std::string Trials::decide() {
  switch (stage_) {
    case Stage::kAll:
      return decide_all();
    case Stage::kStores:
      return decide_stores();
    case Stage::kSettled:
      if (!doubts() || !may_try_again()) return {};
      stores_tried_ = false;
      try_all(settled_.streamed);
      return {};
    case Stage::kResting:
      return {};
  }
  return {};
}

// The way that calls had before comes first: winner() prefers it where the difference is small.
void Trials::try_all(bool streamed) {
  const Way before = settled_;
  stage_ = Stage::kAll;
  ++round_;
  stage_calls_ = 0;
  entries_.clear();
  for (const Algorithm algorithm : ways_) entries_.push_back({{algorithm, streamed}, {}});
  const auto first = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.way.algorithm == before.algorithm; });
  if (first != entries_.end()) std::rotate(entries_.begin(), first, first + 1);
}

void Trials::settle(const Way& way, uint64_t cost_ns) {
  stage_ = Stage::kSettled;
  ++round_;
  stage_calls_ = 0;
  settled_ = way;
  settled_ns_ = cost_ns;
  off_ = 0;
}

// No call counted, such as where calls always wait behind others: the first way runs without clock reads.
void Trials::rest() {
  const Way way = entries_.front().way;
  settle(way, 0);
  stage_ = Stage::kResting;
}

size_t Trials::alive() const {
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return !entry.dropped; }));
}

const Trials::Entry* Trials::least() const {
  const Entry* least = nullptr;
  for (const Entry& entry : entries_) {
    const bool known = !entry.dropped && entry.costs_ns.size() >= kFewestCosts;
    if (known && (least == nullptr || entry.quarter_ns() < least->quarter_ns())) least = &entry;
  }
  return least;
}

// The least, unless the first is hardly worse.
const Trials::Entry& Trials::winner() const {
  const Entry& best = *least();
  const Entry& first = entries_.front();
  const bool keeps =
      !first.dropped && !first.costs_ns.empty() && 100 * best.quarter_ns() > kHysteresis * first.quarter_ns();
  return keeps ? first : best;
}

// True if the stage is over: each way has had its calls, or one is left.
bool Trials::drop_slow() {
  if (const Entry* const best = least()) {
    const uint64_t most = kDropped * best->quarter_ns();
    for (Entry& entry : entries_) {
      // By its least: a way of which some calls were disturbed has another turn.
      const bool known = entry.costs_ns.size() >= kFewestCosts;
      if (known && 100 * entry.least_ns() > most) entry.dropped = true;
    }
  }
  return all_tried();
}

bool Trials::all_tried() const {
  if (alive() == 1 && least() != nullptr) return true;
  return std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    const bool counts = entry.costs_ns.size() * 2 >= static_cast<size_t>(kBlock * kBlocks);
    return entry.dropped || (entry.timed >= kBlock * kBlocks && counts) || entry.timed >= kMostTimed;
  });
}

// What the stage has cost beyond its winner.
void Trials::pay() {
  const uint64_t best = winner().quarter_ns();
  compared_.clear();
  for (const Entry& entry : entries_) {
    for (const uint64_t cost : entry.costs_ns) spent_ns_ += cost > best ? cost - best : 0;
    if (entry.costs_ns.empty()) continue;
    compared_ += fmt::format("{}{} {:.1f} us", compared_.empty() ? "" : ", ", way_text(entry.way),
                             static_cast<double>(entry.quarter_ns()) / 1e3);
  }
}

std::string Trials::decide_all() {
  if (!drop_slow()) return {};
  if (least() == nullptr) {
    rest();
    return {};
  }
  pay();
  const Entry best = winner();
  settle(best.way, best.quarter_ns());
  if (stores_ == Stores::kBoth && !stores_tried_) try_stores(best);
  return stage_ == Stage::kSettled ? conclude() : std::string();
}

// The winner, and the best way that stores what others read, with the other kind of stores.
void Trials::try_stores(const Entry& winner) {
  stores_tried_ = true;
  const Entry* other = nullptr;
  for (const Entry& entry : entries_) {
    const bool known = stores(entry.way.algorithm) && !entry.costs_ns.empty();
    if (known && (other == nullptr || entry.quarter_ns() < other->quarter_ns())) other = &entry;
  }
  if (other == nullptr) return;
  const Way with_other{other->way.algorithm, !other->way.streamed};
  stage_ = Stage::kStores;
  entries_ = {{winner.way, {}}, {with_other, {}}};
}

std::string Trials::decide_stores() {
  if (!drop_slow()) return {};
  if (least() == nullptr) {
    settle(settled_, settled_ns_);
    return conclude();
  }
  const std::string before = compared_;
  pay();
  compared_ = before + "; " + compared_;
  const Entry best = winner();
  const bool other = !(best.way == entries_.front().way);
  streamed_known_ = other ? best.way.streamed : !entries_.back().way.streamed;
  settle(best.way, best.quarter_ns());
  if (!other || ways_.size() == 1) return conclude();
  try_all(best.way.streamed);
  return {};
}

// Trials are over.
std::string Trials::conclude() {
  const bool confirmed = told_ == settled_;
  patience_ = confirmed ? std::min(8 * patience_, limits_.last) : limits_.first;
  if (confirmed) return {};
  told_ = settled_;
  return fmt::format("{} from now on ({})", way_text(settled_), compared_);
}

}  // namespace rondo
