#include "transport/control/plane/control_connections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "ring/base/interrupt.h"
#include "transport/tcp/socket_options.h"

namespace rondo {
namespace {

using std::chrono::milliseconds;
using Clock = ControlDriver::Clock;

// A start that waits says so this often, as rank 0 does while cards are missing (roster.cc).
constexpr std::chrono::seconds kMissingLogInterval{10};
// A neighbor that should have dialed and has not is looked for this often while the start waits.
constexpr milliseconds kProbeInterval{500};

}  // namespace

ControlConnections::ControlConnections(const PlaneSettings& settings, asio::io_context& io, ControlDriver& driver,
                                       PeerDialer& dialer, ControlMesh::OnMessage on_message)
    : settings_(settings),
      driver_(driver),
      dialer_(dialer),
      mesh_(
          io, settings.rank, settings.world, std::move(on_message),
          [this](int peer, const std::string& why) { on_end(peer, why); },
          [this](int peer) {
            const auto state = driver_.hold();
            if (state->logic) state->logic->liveness().heard(ControlDriver::now(), peer);
          }),
      probe_(io) {}

// fail_late() ends it.
void ControlConnections::await_start() {
  const auto over = [](const ControlDriver::State& state) {
    return state.start->phase() != StartLogic::Phase::kRunning;
  };
  auto next_log = Clock::now() + kMissingLogInterval;
  while (!driver_.wait_until(Clock::now() + kBetweenInterruptQuestions, over)) {
    end_wait_if_interrupted();
    if (Clock::now() < next_log) continue;
    next_log = Clock::now() + kMissingLogInterval;
    std::vector<std::string> names;
    for (const int peer : missing()) names.push_back(driver_.peer_name(peer));
    settings_.logger.warn(fmt::format("waiting for the control connections of {}", fmt::join(names, ", ")));
  }
  const auto state = driver_.hold();
  if (state->start->phase() == StartLogic::Phase::kFailed) throw Exception(state->start->error());
}

void ControlConnections::begin(Deadline deadline) {
  for (int peer : control_neighbors(settings_.rank, settings_.world)) {
    if (peer > settings_.rank) continue;
    dialer_.dial_control(peer, deadline, [this, peer](DialResult result) {
      if (!result.error.ok()) return failed(peer, result.error);
      add(peer, std::move(result.socket));
    });
  }
  probe_missing(deadline);
}

// Higher ranks dial this one. One that died after it was listed never will, and no other rank may notice: so their
// listeners are knocked at; after a failure too, while this rank waits for them.
void ControlConnections::probe_missing(Deadline deadline) {
  const auto now = Clock::now();
  const auto next = now < deadline ? std::min(now + kProbeInterval, deadline) : now + kProbeInterval;
  probe_.set(next, [this, deadline] {
    if (Clock::now() >= deadline) fail_late();
    if (started()) return;
    for (const int peer : missing()) {
      if (peer < settings_.rank) continue;
      dialer_.knock(peer, deadline, [this, peer](const DialResult& result) {
        const ErrorCode code = result.error.code;
        if (code == ErrorCode::kPeerLost || code == ErrorCode::kUnresponsive) failed(peer, result.error);
      });
    }
    probe_missing(deadline);
  });
}

// The deadline of the start. A rank that took the connection and does not answer is stopped or busy; else the way
// between the two is to blame.
void ControlConnections::fail_late() {
  constexpr size_t kMostDescribed = 4;
  Error error{ErrorCode::kBootstrap, "", {}};
  {
    const auto state = driver_.hold();
    if (state->start->phase() != StartLogic::Phase::kRunning) return;
    // A death that still waits for a better reason.
    state->start->tick(std::numeric_limits<StartLogic::Time>::max());
    error.ranks.assign(state->start->missing().begin(), state->start->missing().end());
  }
  const size_t missing = error.ranks.size();
  for (size_t i = 0; i < missing; ++i) {
    const auto [why, accepted] = dialer_.why_missing(error.ranks[i]);
    if (!accepted) error.code = ErrorCode::kNetwork;
    if (i < kMostDescribed) error.message += why + "; ";
  }
  if (missing > kMostDescribed) error.message += fmt::format("and {} more ranks; ", missing - kMostDescribed);
  error.message += "the start's deadline has passed (RONDO_START_TIMEOUT_MS)";
  if (error.code == ErrorCode::kNetwork) {
    error.message += fmt::format("; {}", kReachAdvice);
    error.ranks.insert(std::lower_bound(error.ranks.begin(), error.ranks.end(), settings_.rank), settings_.rank);
  }
  driver_.tell_start([&](StartLogic& start) { start.fail(error); });
}

// kPeerLost here is a guess by "connection refused", which a firewall may say as well: the others are asked first.
void ControlConnections::failed(int peer, const Error& error) {
  if (error.code == ErrorCode::kPeerLost) {
    driver_.tell_start([&](StartLogic& start) { start.unreached(ControlDriver::now(), peer, error.message); });
  } else if (error.code == ErrorCode::kUnresponsive) {  // the network's fault, or a host's that has vanished
    const std::vector<int> both{std::min(peer, settings_.rank), std::max(peer, settings_.rank)};
    driver_.tell_start([&](StartLogic& start) { start.fail({ErrorCode::kNetwork, error.message, both}); });
  } else if (error.code != ErrorCode::kTimeout) {  // fail_late() names all that are missing
    const bool specific = error.code == ErrorCode::kAuthFailed || error.code == ErrorCode::kSystem;
    const ErrorCode code = specific ? error.code : ErrorCode::kBootstrap;
    const int culprit = code == ErrorCode::kSystem ? settings_.rank : peer;
    driver_.tell_start([&](StartLogic& start) { start.fail({code, error.message, {culprit}}); });
  }
}

// Both ways lead here: the dial of a lower rank, and the welcome of a higher one.
void ControlConnections::add(int peer, SecuredSocket socket) {
  if (!missing().count(peer)) return;  // welcomed twice: the first that confirmed counts
  try {
    tune_control_socket(socket.socket.get(), silence_ms(settings_.config));
  } catch (const Exception& failure) {
    return driver_.tell_start([&](StartLogic& start) { start.fail(failure.error()); });
  }
  mesh_.add(peer, std::move(socket));
  {
    const auto state = driver_.hold();
    ++live_;
    state->logic->liveness().watch(ControlDriver::now(), peer);
  }
  dialer_.forget_knock(peer);
  driver_.tell_start([peer](StartLogic& start) { start.connected(peer); });
  if (leaving_) mesh_.finish(peer);
}

// Its start cannot succeed either, if that is still under way.
void ControlConnections::drop(int peer) {
  if (!mesh_.drop(peer)) return;
  const auto state = driver_.hold();
  --live_;
  state->start->lost(ControlDriver::now(), peer, "it does not answer");
}

// Called by the mesh also for a peer that broke the protocol: it is lost then. After its own farewell this rank expects
// all ends.
void ControlConnections::on_end(int peer, const std::string& why) {
  if (!mesh_.remove(peer)) return;
  {
    const auto state = driver_.hold();
    --live_;
  }
  driver_.tell([&](ControlLogic& logic) {
    if (!leaving_) logic.connection_ended(ControlDriver::now(), peer, why);
  });
  driver_.tell_start([&](StartLogic& start) { start.lost(ControlDriver::now(), peer, why); });
}

// The rank in question comes from a peer, and is compared with the world before it is used.
void ControlConnections::on_question(int by, const LostMessage& question) {
  if (question.rank >= static_cast<uint32_t>(settings_.world)) return;
  const int about = static_cast<int>(question.rank);
  if (started()) {
    return driver_.tell([&](ControlLogic& logic) { logic.unreached(ControlDriver::now(), about, by, question.why); });
  }
  driver_.tell_start([&](StartLogic& start) { start.asked(about, by, question.why); });
}

// The same message means another thing after this rank's own start: then it is a departure.
void ControlConnections::on_failed_start(int source, const AbortMessage& abort) {
  settings_.logger.info(fmt::format("{} failed to start: {}", driver_.peer_name(source), abort.error.message));
  if (started()) {
    driver_.tell([&](ControlLogic& logic) { logic.receive(ControlDriver::now(), source, abort); });
  } else {
    driver_.tell_start([&](StartLogic& start) { start.gave_up(source, abort.error); });
  }
  mesh_.finish(source);
}

void ControlConnections::leave(Farewell farewell) {
  leaving_ = farewell;
  if (farewell == Farewell::kGoodbye) {
    dialer_.forget_starts();
    probe_.cancel();
    driver_.tell([](ControlLogic& logic) { logic.leave(); });
  } else {
    driver_.flush();  // says why, before nothing more can be said
  }
  mesh_.finish_all();
  driver_.notify();
}

std::set<int> ControlConnections::missing() { return driver_.hold()->start->missing(); }

bool ControlConnections::started() { return driver_.hold()->start->phase() == StartLogic::Phase::kDone; }

}  // namespace rondo
