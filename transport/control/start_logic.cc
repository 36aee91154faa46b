#include "transport/control/start_logic.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "transport/control/earlier.h"

namespace rondo {

StartLogic::StartLogic(Settings settings) : settings_(std::move(settings)) {
  missing_.insert(settings_.neighbors.begin(), settings_.neighbors.end());
  check_done();
}

void StartLogic::connected(int peer) {
  if (missing_.erase(peer) == 0) return;
  live_.insert(peer);
  unreached_.erase(peer);
  if (phase_ == Phase::kFailed) tell_error(peer);
  check_done();
}

// A rank that has said before why it failed is no death: its reason is this rank's, too. The first loss opens the
// grace, and later ones join it without making it longer.
void StartLogic::lost(Time now, int peer, const std::string& why) {
  const bool known = missing_.erase(peer) + live_.erase(peer) > 0;
  unreached_.erase(peer);
  if (phase_ != Phase::kRunning || !known) return;
  if (const auto found = later_.find(peer); found != later_.end()) return fail(found->second);
  // The last tick of a start is at the end of time (ControlConnections::fail_late()), behind which no grace fits.
  if (losses_.empty())
    losses_due_ = std::min(now, std::numeric_limits<Time>::max() - settings_.grace_ms) + settings_.grace_ms;
  losses_.emplace(peer, why);
}

// The question goes to the connected ranks, of which one answers by its own failure (asked()) if it is connected to
// `peer`, so that all hear of it. Without an answer within answer_ms the rank counts as dead (tick()).
void StartLogic::unreached(Time now, int peer, const std::string& why) {
  if (missing_.count(peer) == 0) return;
  if (phase_ != Phase::kRunning) return lost(now, peer, why);  // it cannot be told any more
  if (live_.empty()) return lost(now, peer, why + "; or a firewall refuses the connection");
  if (!unreached_.emplace(peer, Unreached{why, now + settings_.answer_ms}).second) return;
  const LostMessage question{static_cast<uint32_t>(peer), static_cast<uint32_t>(settings_.rank),
                             LostMessage::Fate::kUnreached, why};
  for (const int connected : live_) messages_.emplace_back(connected, question);
}

// This rank is the one in question, or is connected to it: it lives, so the start fails for the way between the two. A
// rank that knows nothing of `peer` says nothing.
void StartLogic::asked(int peer, int by, const std::string& why) {
  if (peer != settings_.rank && live_.count(peer) == 0) return;
  fail(parted_error({peer, by, settings_.rank, name(peer), name(by), why}));
}

// It is told nothing back: it knows, and sends nothing more.
void StartLogic::gave_up(int peer, const Error& error) {
  live_.erase(peer);
  fail(heard_start_error(settings_.rank, peer, name(peer), error));
}

void StartLogic::failed_later(int peer, const Error& error) { later_.emplace(peer, error); }

void StartLogic::fail(const Error& error) {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kFailed;
  error_ = error;
  losses_.clear();
  unreached_.clear();
  messages_.clear();  // questions, of no use any more
  for (const int connected : live_) tell_error(connected);
}

void StartLogic::fail_after(const Error& error) {
  if (phase_ == Phase::kDone) phase_ = Phase::kRunning;
  fail(error);
}

// Unanswered questions become losses, and losses whose grace is over fail the start, all by one error.
void StartLogic::tick(Time now) {
  std::vector<std::pair<int, std::string>> dead;
  for (const auto& [peer, unreached] : unreached_) {
    if (unreached.due <= now) dead.emplace_back(peer, unreached.why);
  }
  for (const auto& [peer, why] : dead) lost(now, peer, why);
  if (losses_.empty() || now < losses_due_) return;
  Error error{ErrorCode::kPeerLost, "", {}};
  for (const auto& [peer, why] : losses_) {
    if (!error.message.empty()) error.message += "; ";
    error.message += fmt::format("{} died while the group was starting ({})", name(peer), why);
    error.ranks.push_back(peer);
  }
  fail(error);
}

std::optional<StartLogic::Time> StartLogic::next_time() const {
  std::optional<Time> next;
  if (!losses_.empty()) next = losses_due_;
  for (const auto& [peer, unreached] : unreached_) next = earlier(next, unreached.due);
  return next;
}

// The culprits are left out: they are dead, or their own error names them.
std::set<int> StartLogic::untold() const {
  if (phase_ != Phase::kFailed) return {};
  std::set<int> result = missing_;
  for (const int culprit : error_.ranks) result.erase(culprit);
  return result;
}

// A loss that waits for its grace keeps the start from being done, though nobody is missing any more.
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

// A rank that is called dead and hears it lives: then the network is to blame, and the error says so.
Error heard_start_error(int rank, int peer, const std::string& peer_name, const Error& error) {
  Error own = error;
  if (error.code == ErrorCode::kNetwork && error.ranks.size() > 1) return own;  // the two ends of a way
  own.ranks = start_culprits(rank, peer, error);
  if (own.ranks == std::vector{peer}) own.message = fmt::format("{} gave up its start: {}", peer_name, error.message);
  const bool lives = std::find(error.ranks.begin(), error.ranks.end(), rank) != error.ranks.end();
  if (error.code == ErrorCode::kPeerLost && lives) {
    own.code = ErrorCode::kNetwork;
    own.message += fmt::format("; rank {} lives: {}", rank, kReachAdvice);
  }
  return own;
}

Error parted_error(const Parted& parted) {
  Error error{ErrorCode::kNetwork,
              fmt::format("{} cannot connect to {}, which lives, as rank {} knows: {}; {}", parted.by_name,
                          parted.peer_name, parted.witness, parted.why, kReachAdvice),
              {parted.by, parted.peer}};
  std::sort(error.ranks.begin(), error.ranks.end());
  return error;
}

}  // namespace rondo
