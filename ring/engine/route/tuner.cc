#include "ring/engine/route/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace rondo {
namespace {

std::string kind_text(const TunerKey& key) {
  const uint64_t least = uint64_t{1} << (key.log2_bytes - 1);
  const std::string root = key.root < 0 ? "" : fmt::format(", root {}", key.root);
  return fmt::format("{} of {} to {} bytes{}", collective_name(key.collective), least, 2 * least - 1, root);
}

}  // namespace

std::optional<uint64_t> cost_ns(std::span<const TimedCall> ranks, Clocks clocks) {
  uint64_t begin = 0, end = 0, shortest = UINT64_MAX, longest = 0;
  for (const TimedCall& call : ranks) {
    if (call.end_ns == 0) return std::nullopt;
    const uint64_t took = call.end_ns > call.begin_ns ? call.end_ns - call.begin_ns : 1;
    shortest = std::min(shortest, took);
    longest = std::max(longest, took);
    begin = std::max(begin, call.begin_ns);
    end = std::max(end, call.end_ns);
  }
  if (ranks.empty()) return std::nullopt;
  if (clocks == Clocks::kOfHosts) return shortest;
  // The cost on one clock lies between these; containers may have set theirs apart.
  return std::clamp(end > begin ? end - begin : 1, shortest, longest);
}

Trials::Next Tuner::next(const TunerKey& key, std::span<const Algorithm> ways, Trials::Stores stores) const {
  const auto found = kinds_.find(key);
  return found != kinds_.end() ? found->second.trials.next() : Trials(ways, stores, streamed_).next();
}

TunedKind& Tuner::began(const TunerKey& key, std::span<const Algorithm> ways, Trials::Stores stores) {
  auto found = kinds_.find(key);
  if (found == kinds_.end()) {
    if (kinds_.size() == kMostKinds) make_room();
    found = kinds_.emplace(key, TunedKind{Trials(ways, stores, streamed_)}).first;
  }
  const Trials::Next call = found->second.trials.next();
  // A full list was exchanged before this call was decided.
  if (call.timed && !due()) pending_.push_back({key, call});
  began(found->second);
  return found->second;
}

void Tuner::make_room() {
  ++changes_;
  kinds_.erase(std::min_element(kinds_.begin(), kinds_.end(), [](const auto& one, const auto& other) {
    return one.second.called < other.second.called;
  }));
}

std::vector<std::string> Tuner::learn(std::span<const TimeRecord> ranks, Clocks clocks) {
  ++changes_;
  // Ordered, so that all ranks decide and log in the same order.
  std::set<TunerKey> changed;
  for (size_t i = 0; i < pending_.size(); ++i) {
    const auto kind = kinds_.find(pending_[i].key);
    // It has given way to another kind meanwhile.
    if (kind == kinds_.end()) continue;
    std::vector<TimedCall> times;
    for (const TimeRecord& record : ranks) times.push_back(record[i]);
    kind->second.trials.learn(pending_[i].call, cost_ns(times, clocks));
    changed.insert(pending_[i].key);
  }
  pending_.clear();
  std::vector<std::string> lines;
  for (const TunerKey& key : changed) {
    Trials& trials = kinds_.at(key).trials;
    const std::string choice = trials.decide();
    if (trials.streamed()) streamed_ = *trials.streamed();
    if (!choice.empty()) lines.push_back(kind_text(key) + ": " + choice);
  }
  return lines;
}

void Tuner::begin_again() {
  ++changes_;
  kinds_.clear();
  pending_.clear();
}

}  // namespace rondo
