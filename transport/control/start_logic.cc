#include "transport/control/start_logic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rondo {

StartLogic::StartLogic(Settings settings) : settings_(std::move(settings)) {
  missing_.insert(settings_.neighbors.begin(), settings_.neighbors.end());
  check_done();
}

void StartLogic::connected(int peer) {
  if (missing_.erase(peer) == 0) return;
  live_.insert(peer);
  if (phase_ == Phase::kFailed) listeners_.push_back(peer);
  check_done();
}

void StartLogic::lost(Time now, int peer, const std::string& why) {
  const bool known = missing_.erase(peer) + live_.erase(peer) > 0;
  if (phase_ != Phase::kRunning || !known) return;
  if (const auto found = later_.find(peer); found != later_.end()) return fail(found->second);
  if (losses_.empty()) losses_due_ = now + settings_.grace_ms;
  losses_.emplace(peer, why);
}

void StartLogic::gave_up(int peer, const Error& error) {
  live_.erase(peer);
  Error own = error;
  own.ranks = start_culprits(settings_.rank, peer, error);
  if (own.ranks == std::vector{peer}) own.message = fmt::format("{} gave up its start: {}", name(peer), error.message);
  fail(own);
}

void StartLogic::failed_later(int peer, const Error& error) { later_.emplace(peer, error); }

void StartLogic::fail(const Error& error) {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kFailed;
  error_ = error;
  losses_.clear();
  listeners_.assign(live_.begin(), live_.end());
}

void StartLogic::fail_after(const Error& error) {
  if (phase_ == Phase::kDone) phase_ = Phase::kRunning;
  fail(error);
}

void StartLogic::tick(Time now) {
  if (losses_.empty() || now < losses_due_) return;
  Error error{ErrorCode::kPeerLost, "", {}};
  for (const auto& [peer, why] : losses_) {
    if (!error.message.empty()) error.message += "; ";
    error.message += fmt::format("{} died while the group was starting ({})", name(peer), why);
    error.ranks.push_back(peer);
  }
  fail(error);
}

std::vector<int> StartLogic::take_listeners() { return std::exchange(listeners_, {}); }

std::optional<StartLogic::Time> StartLogic::next_time() const {
  return losses_.empty() ? std::nullopt : std::optional(losses_due_);
}

std::set<int> StartLogic::untold() const {
  if (phase_ != Phase::kFailed) return {};
  std::set<int> result = missing_;
  for (const int culprit : error_.ranks) result.erase(culprit);
  return result;
}

std::string StartLogic::name(int peer) const {
  return fmt::format("rank {} ({})", peer, settings_.names[static_cast<size_t>(peer)]);
}

void StartLogic::check_done() {
  if (phase_ == Phase::kRunning && missing_.empty() && losses_.empty()) phase_ = Phase::kDone;
}

std::vector<int> start_culprits(int rank, int peer, const Error& error) {
  std::vector<int> culprits = error.ranks;
  std::erase(culprits, rank);
  std::sort(culprits.begin(), culprits.end());
  if (culprits.empty()) culprits.push_back(peer);
  return culprits;
}

}  // namespace rondo
