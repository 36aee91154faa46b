#include "transport/control/control_logic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <variant>

#include "ring/base/check.h"
#include "transport/control/earlier.h"

namespace rondo {
namespace {

// "; so do ranks 3, 5": all but the first.
std::string others(const std::vector<Liveness::Silent>& ranks, const char* lead) {
  std::vector<int> rest;
  for (size_t i = 1; i < ranks.size(); ++i) rest.push_back(ranks[i].peer);
  return rest.empty() ? "" : fmt::format("; {} ranks {}", lead, fmt::join(rest, ", "));
}

}  // namespace

std::optional<ControlLogic::Time> ControlLogic::Communicator::next_time() const {
  return earlier(life.next_time(), earlier(inquiry.next_time(), shrinking.next_time()));
}

ControlLogic::ControlLogic(ControlSettings settings)
    : settings_(std::move(settings)),
      liveness_(settings_.liveness),
      departures_(settings_, actions_),
      view_{settings_, departures_, liveness_, actions_} {}

std::optional<ControlLogic::Time> ControlLogic::next_time() const {
  std::optional<Time> next = earlier(departures_.next_time(), liveness_.next_time());
  for (const auto& [id, communicator] : communicators_) next = earlier(next, communicator.next_time());
  return next;
}

// --- this rank

void ControlLogic::open(Time now, uint64_t communicator, std::vector<int> members) {
  RONDO_CHECK(find(communicator) == nullptr, "a communicator is opened once");
  CommunicatorLife& life =
      communicators_.try_emplace(communicator, communicator, std::move(members), view_).first->second.life;
  const Early before = early_.take(communicator);
  // The order is that in which the events came about: a death, the abort that it caused, and then the goodbyes of
  // members that gave up, which would otherwise be taken for the cause.
  life.given_up();
  for (const auto& [peer, loss] : departures_.lost()) {
    if (!before.goodbyes.count(peer)) life.lost(now, peer, loss);
  }
  for (const auto& [peer, why] : departures_.resigned()) life.resigned(now, peer, why);
  if (const auto& failed = departures_.failed_start()) life.fail(*failed);
  if (before.abort) life.receive(before.abort->first, before.abort->second);
  for (const int peer : before.streamed) life.streamed(peer);
  for (const auto& [peer, goodbye] : before.goodbyes) life.left(now, peer, goodbye);
  for (const int peer : departures_.left()) life.left(now, peer, {communicator});
}

// The rank keeps nothing: it has no such communicator. A member that asks later gets an ANSWER without a call.
void ControlLogic::decline(uint64_t communicator, const std::vector<int>& members, const Error& error) {
  for (const int peer : members) {
    if (peer == settings_.rank || departures_.gone(peer)) continue;
    actions_.emplace_back(control::Send{peer, AbortMessage{communicator, Stage::kMaking, error}});
  }
}

bool ControlLogic::close(uint64_t communicator, uint64_t last_sequence, const std::set<int>& streams) {
  Communicator* closed = find(communicator);
  return closed != nullptr && closed->life.close(last_sequence, streams);
}

// What members may still ask for stays in closed_: the failure, for a rank that waits in a call of it (query()), and
// the decision of shrink(), for one that has not heard it (on(MembershipMessage)).
void ControlLogic::forget(uint64_t communicator) {
  const Communicator* ended = find(communicator);
  if (ended == nullptr) return;
  closed_[communicator] = {ended->life.failure(), ended->life.stage(), ended->shrinking.decision()};
  communicators_.erase(communicator);
}

void ControlLogic::stalled(Time now, uint64_t communicator, uint64_t sequence, const CallState& own, Ask ask) {
  if (Communicator* stalled = find(communicator)) stalled->inquiry.stalled(now, sequence, own, ask);
}

void ControlLogic::link_failed(Time now, uint64_t communicator, int peer, const Error& error) {
  if (Communicator* open = find(communicator)) open->life.link_failed(now, peer, error);
}

void ControlLogic::way_failed(Time now, uint64_t communicator, int peer, const Error& error) {
  departures_.way_failed(peer);
  link_failed(now, communicator, peer, error);
}

void ControlLogic::abort(uint64_t communicator, const Error& error) {
  if (Communicator* open = find(communicator)) open->life.fail(error);
}

void ControlLogic::leave() {
  liveness_.forget_all();
  for (const int peer : settings_.neighbors) {
    if (!departures_.gone(peer)) actions_.emplace_back(control::Send{peer, LeaveMessage{}});
  }
}

void ControlLogic::shrink(Time now, uint64_t communicator, Time patience_ms, bool opened) {
  Communicator* shrunk = find(communicator);
  if (shrunk == nullptr || shrunk->life.closing()) return;
  shrunk->shrinking.join(now, patience_ms, opened);
  drive_memberships(now);
}

// --- from outside

void ControlLogic::streamed(uint64_t communicator, int peer) {
  if (Communicator* open = find(communicator)) return open->life.streamed(peer);
  if (Early* before = early(communicator)) before->streamed.insert(peer);
}

// Brings a message to the machine that it is for, then lets all machines react: news of departures first, memberships
// after it, since they count who is lost. CONNECT is the owner's, and ALIVE has done its work when it came
// (liveness()).
void ControlLogic::receive(Time now, int from, const ControlBody& body) {
  // A rank that this one has given up may still run: it is not heard any more.
  const auto lost = departures_.lost().find(from);
  if (lost != departures_.lost().end() && lost->second.code == ErrorCode::kUnresponsive) return;
  std::visit(
      [&](const auto& message) {
        if constexpr (requires { departures_.receive(now, from, message); }) {
          departures_.receive(now, from, message);
        } else if constexpr (requires { on(now, from, message); }) {
          on(now, from, message);
        }
      },
      body);
  spread_news(now);
  if (!std::holds_alternative<AliveMessage>(body)) drive_memberships(now);
}

// Where the communicator has failed here, its abort may have died with a rank on its way: the one that still waits is
// told again.
void ControlLogic::query(int from, const QueryMessage& question, const CallState& own) {
  const Communicator* open = find(question.communicator);
  const Closed* closed = closed_.find(question.communicator);
  std::optional<Error> failure;
  Stage stage = Stage::kMaking;
  if (open != nullptr) {
    failure = open->life.failure(), stage = open->life.stage();
  } else if (closed != nullptr) {
    failure = closed->failure, stage = closed->stage;
  }
  if (failure) {
    actions_.emplace_back(control::Send{from, AbortMessage{question.communicator, stage, *failure}});
    return;
  }
  actions_.emplace_back(control::Send{from, AnswerMessage{question.communicator, question.sequence, own}});
}

// A rank that is gone is not lost a second time: the end of its connection is expected.
void ControlLogic::connection_ended(Time now, int peer, const std::string& why) {
  liveness_.forget(peer);
  if (departures_.gone(peer)) return;
  departures_.connection_ended(now, peer, why);
  spread_news(now);
  drive_memberships(now);
}

void ControlLogic::unreached(Time now, int peer, int by, const std::string& why) {
  departures_.unreached(peer, by, why);
  spread_news(now);
}

void ControlLogic::ended(Time now, int peer) {
  departures_.ended(peer);
  drive_memberships(now);
}

// The rank's machines come before the communicators' machines, which so hear of a departure that is due now.
void ControlLogic::tick(Time now) {
  look_for_silence(now);
  departures_.tick(now);
  spread_news(now);
  drive_memberships(now);
  for (auto& [id, communicator] : communicators_) {
    communicator.inquiry.tick(now);
    communicator.life.tick(now);
  }
}

// The first abort of a communicator that is not open here is kept for open(); a later one has a worse reason.
void ControlLogic::on(Time, int from, const AbortMessage& message) {
  if (message.communicator == 0) return departures_.start_failed(from, message.error);
  if (Communicator* open = find(message.communicator)) return open->life.receive(from, message);
  Early* before = early(message.communicator);
  if (before != nullptr && !before->abort) before->abort = {from, message};
}

// Answers and blames of a communicator that is not open are late, and dropped.
void ControlLogic::on(Time now, int from, const AnswerMessage& message) {
  Communicator* open = find(message.communicator);
  if (open == nullptr) return;
  if (auto disagreement = open->inquiry.receive(now, from, message)) open->life.fail(std::move(*disagreement));
}

void ControlLogic::on(Time now, int from, const ByeMessage& message) {
  if (Communicator* open = find(message.communicator)) return open->life.receive(now, from, message);
  if (Early* before = early(message.communicator)) before->goodbyes.emplace(from, message);
}

void ControlLogic::on(Time, int, const BlameMessage& message) {
  if (Communicator* open = find(message.communicator)) open->inquiry.receive(message);
}

// A member of a closed communicator that still asks gets the decision. Answers to ballots of that communicator need
// none.
void ControlLogic::on(Time now, int from, const MembershipMessage& message) {
  if (Communicator* open = find(message.communicator)) return open->shrinking.receive(now, from, message);
  const Closed* closed = closed_.find(message.communicator);
  if (closed == nullptr || !closed->decision) return;
  using Kind = MembershipMessage::Kind;
  if (message.kind != Kind::kJoin && message.kind != Kind::kPrepare && message.kind != Kind::kPropose) return;
  MembershipMessage answer;
  answer.communicator = message.communicator;
  answer.kind = Kind::kDecided;
  answer.value = *closed->decision;
  actions_.emplace_back(control::Send{from, std::move(answer)});
}

// --- questions

ControlLogic::Communicator* ControlLogic::find(uint64_t communicator) {
  const auto found = communicators_.find(communicator);
  return found == communicators_.end() ? nullptr : &found->second;
}

const ControlLogic::Communicator* ControlLogic::find(uint64_t communicator) const {
  const auto found = communicators_.find(communicator);
  return found == communicators_.end() ? nullptr : &found->second;
}

bool ControlLogic::sound(uint64_t communicator) const {
  const Communicator* open = find(communicator);
  return open != nullptr && !open->life.failure();
}

bool ControlLogic::may_join(uint64_t communicator, int peer) const {
  const Communicator* open = find(communicator);
  return open == nullptr || open->life.has(peer);
}

bool ControlLogic::all_left(uint64_t communicator) const {
  const Communicator* open = find(communicator);
  return open == nullptr || open->life.all_left();
}

bool ControlLogic::shrinking(uint64_t communicator) const {
  const Communicator* open = find(communicator);
  return open != nullptr && open->shrinking.under_way();
}

Shrunk ControlLogic::shrunk(uint64_t communicator) const {
  if (const Communicator* open = find(communicator)) return open->shrinking.result();
  throw Exception(Error{ErrorCode::kClosed, "the communicator was destroyed in shrink()", {settings_.rank}});
}

// --- parts

// nullptr: it is closed, so what comes is late. Where the oldest is forgotten this rank learns of a lost abort by its
// own question (query()).
ControlLogic::Early* ControlLogic::early(uint64_t communicator) {
  return closed_.has(communicator) ? nullptr : &early_[communicator];
}

// All communicators hear of a departure before the next one.
void ControlLogic::spread_news(Time now) {
  for (const auto& [kind, peer] : departures_.take_news()) {
    using Kind = Departures::News::Kind;
    if (kind == Kind::kLost || kind == Kind::kLeft || kind == Kind::kGivenUp) liveness_.forget(peer);
    for (auto& [id, communicator] : communicators_) {
      CommunicatorLife& life = communicator.life;
      if (kind == Kind::kLost) life.lost(now, peer, departures_.lost().at(peer));
      if (kind == Kind::kLeft) life.left(now, peer, {id});
      if (kind == Kind::kResigned) life.resigned(now, peer, departures_.resigned().at(peer));
      if (kind == Kind::kStartFailed) life.start_failed(*departures_.failed_start());
      if (kind == Kind::kGivenUp) life.given_up();
    }
  }
}

// After every event: a membership reacts to departures and messages of any kind, and its messages are taken here.
void ControlLogic::drive_memberships(Time now) {
  for (auto& [id, communicator] : communicators_) {
    communicator.shrinking.tick(now);
    if (communicator.shrinking.goes_on()) communicator.life.go_on();
  }
}

// One line of the log for each kind of finding, with the first rank in full: a cut cable silences hundreds at once.
void ControlLogic::look_for_silence(Time now) {
  const Liveness::Findings found = liveness_.tick(now);
  const auto note = [&](std::string text) { actions_.emplace_back(control::Note{std::move(text)}); };
  if (found.stopped_ms > 0) {
    note(fmt::format("{} made no progress for {}: its process was stopped, or its core was taken",
                     settings_.name(settings_.rank), time_text(found.stopped_ms)));
  }
  if (!found.back.empty()) {
    const auto& [peer, ms] = found.back.front();
    note(fmt::format("{} answers again, after {} of silence{}", settings_.name(peer), time_text(ms),
                     others(found.back, "so do")));
  }
  if (!found.silent.empty()) {
    const auto& [peer, ms] = found.silent.front();
    note(fmt::format("{} has not answered for {}: its process is stopped, or its host is cut off{}",
                     settings_.name(peer), time_text(ms), others(found.silent, "nor have")));
  }
  for (const auto& [peer, ms] : found.unresponsive) departures_.give_up(now, peer);
  if (!found.beat) return;
  for (const int peer : settings_.neighbors) {
    if (!departures_.gone(peer)) actions_.emplace_back(control::Send{peer, AliveMessage{}});
  }
}

}  // namespace rondo
