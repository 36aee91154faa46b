#include "transport/control/plane/control_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "ring/base/system_error.h"
#include "transport/control/plane/refusal.h"
#include "transport/tcp/socket_options.h"

namespace rondo {

using std::chrono::milliseconds;

// thread_ runs before the members after it are made. It has no work until the post at the end, so its handlers find
// them all.
ControlPlane::ControlPlane(PlaneSettings settings)
    : settings_(std::move(settings)),
      thread_([this](const Error& error) { on_exception(error); }),
      wake_(thread_.context(), [this] { on_wake(); }),
      driver_(thread_, wake_,
              {[this](const control::Action& action) { carry_out(action); },
               [this](int peer, const ControlBody& message) { connections_.mesh().send(peer, message); },
               [this] { return processes_.ended_by_launcher(); }}),
      dialer_(thread_.context(), {settings_.rank, settings_.world, settings_.job_id, settings_.config, settings_.auth}),
      connections_(settings_, thread_.context(), driver_, dialer_,
                   [this](int source, const ControlBody& body) { on_message(source, body); }),
      links_(settings_, driver_, dialer_, connections_.mesh(),
             [this](const LinkName& name) {
               // A communicator that is opened only now rings by itself (OpenCommunicators::open()).
               if (const auto bell = communicators_.doorbell(name)) bell->ring();
             }),
      communicators_(driver_, &links_),
      processes_(
          thread_.context(), settings_.rank, settings_.world, settings_.ended, settings_.logger,
          [this](int rank) { driver_.tell([rank](ControlLogic& logic) { logic.ended(ControlDriver::now(), rank); }); }),
      look_(thread_.context()) {
  Reception::Settings listening;
  for (const std::string& address : settings_.addresses) {
    listening.listeners.push_back(listen_in_range(address, settings_.ports, tuning_of(settings_.config)));
  }
  listening.handshake_timeout_ms = settings_.config.handshake_timeout_ms;
  // TCP may send again as long after an outage as that lasted.
  const int64_t given_up_ms = 2 * settings_.config.suspicion_ms;
  listening.confirm_timeout_ms = given_up_ms == 0 ? 0 : std::max(given_up_ms, listening.handshake_timeout_ms);
  listening.max_pending = settings_.max_pending;
  listening.max_known = settings_.max_known;
  listening.logger = settings_.logger;
  listening.auth = settings_.auth;
  listening.seals = settings_.config.encrypt;
  reception_ = std::make_unique<Reception>(
      thread_.context(), std::move(listening), [this](const Hello& hello) { return judge(hello); },
      [this](const Hello& hello, SecuredSocket socket) {  // what was true when it was judged is looked at again
        if (hello.role != Role::kControl) return links_.welcome(hello, std::move(socket));
        connections_.add(static_cast<int>(hello.rank), std::move(socket));
      });
  driver_.post([this] {
    reception_->start();
    wake_.listen();
    look();
  });
}

ControlPlane::~ControlPlane() { thread_.stop(); }

// A stream whose opener has left is waited for through an outage that the ranks survive (the suspicion), and a
// handshake.
void ControlPlane::know(const Roster& roster) {
  const Config& config = settings_.config;
  ControlSettings logic;
  logic.rank = settings_.rank;
  logic.names = roster.names();
  logic.neighbors = control_neighbors(settings_.rank, settings_.world);
  logic.liveness = {config.heartbeat_ms, config.suspicion_ms};
  logic.stream_ms = config.suspicion_ms + config.handshake_timeout_ms;
  logic.blame_after_ms = Liveness::kWarnHeartbeats * config.heartbeat_ms;
  driver_.hold()->start.emplace(StartLogic::Settings{logic.rank, logic.names, logic.neighbors});
  driver_.know(std::move(logic));
}

// Hellos that came before this rank knew the others are judged now.
void ControlPlane::connect(Roster roster, Deadline deadline) {
  driver_.post([this, deadline, shared = std::make_shared<Roster>(std::move(roster))] {
    dialer_.know(std::move(*shared));
    reception_->reconsider();
    connections_.begin(deadline);
  });
  connections_.await_start();
}

Error ControlPlane::cause_of(const Error& error) {
  // What came of a death may be noticed before the death, by as much as a failed link may (fabric.h).
  constexpr milliseconds kGrace{100};
  const auto failed = [](const ControlDriver::State& state) {
    return state.start->phase() == StartLogic::Phase::kFailed;
  };
  driver_.wait_until(ControlDriver::Clock::now() + kGrace, [&](const ControlDriver::State& state) {
    return failed(state) || state.logic->departures().anyone_lost();
  });
  const auto state = driver_.hold();
  if (failed(*state)) return error;  // connect() has told
  return state->logic->departures().start_failure().value_or(error);
}

void ControlPlane::fail_start(const Error& error) {
  driver_.hold()->start->fail_after(error);
  driver_.request_flush();
}

// Without memory to post the farewell is left in wanted_farewell_, and the I/O thread finds it when it is rung.
void ControlPlane::leave(Farewell farewell, Deadline deadline) {
  try {
    driver_.post([this, farewell] { begin_leave(farewell); });
  } catch (const std::bad_alloc&) {
    const auto state = driver_.hold();
    wanted_farewell_ = farewell;
    wake_.ring();
  }
  driver_.wait_until(deadline, [this](const ControlDriver::State& state) {
    return state.descriptors_closed || !connections_.any_left(state);
  });
}

// --- the I/O thread

// The rank's own failure ends everything that it takes part in; the process lives. The communicators are told by way of
// the logic, so that the others hear it, and, if memory does not even suffice for that, at once.
void ControlPlane::on_exception(const Error& error) noexcept {
  try {
    fail_everything(error);
  } catch (...) {
    driver_.forget_actions();
    communicators_.break_all();
    driver_.notify();
  }
}

// Before know() there is nobody to tell: State::broken fails the start once it is there.
void ControlPlane::fail_everything(const Error& error) {
  const Error named{error.code,
                    fmt::format("the I/O thread of rank {} failed: {}", settings_.rank,
                                error.message.empty() ? "out of memory" : error.message),
                    {settings_.rank}};
  {
    const auto state = driver_.hold();
    state->broken = named;
    if (!state->logic) return;
    state->start->fail(named);
    communicators_.abort_all(*state->logic, named);
  }
  driver_.flush();
}

// The farewell last: where memory ends before it, it stays wanted.
void ControlPlane::on_wake() {
  communicators_.wake_all();
  std::optional<Farewell> farewell;
  {
    const auto state = driver_.hold();
    farewell = std::exchange(wanted_farewell_, std::nullopt);
  }
  if (farewell) return begin_leave(*farewell);
  driver_.flush();
}

// The one descriptor that nothing else looks at stands for all. Without them nothing comes and nothing goes.
void ControlPlane::look() {
  look_.set(ControlDriver::Clock::now() + milliseconds(settings_.config.heartbeat_ms), [this] {
    look();
    if (wake_.closed() && !std::exchange(driver_.hold()->descriptors_closed, true)) {
      thread_.poll_from_now_on();
      fail_everything(system_error("its descriptors", EBADF));
    }
    links_.look();
  });
}

// The hello is that of a process that knows the secret, or a replay of one; only the confirmation behind the welcome
// proves which. nullopt: the roster is not known here yet, and connect() asks again.
std::optional<Answer> ControlPlane::judge(const Hello& hello) {
  const int rank = settings_.rank;
  if (auto refusal = refusal_of(hello, settings_)) return refusal;
  // After a failed start others may connect still, to hear why.
  const auto& leaving = connections_.leaving();
  if (leaving && (leaving == Farewell::kGoodbye || hello.role != Role::kControl)) {
    return answer_of(rank, AnswerCode::kForbidden, fmt::format("rank {} is leaving", rank));
  }
  if (!dialer_.roster()) return std::nullopt;
  if (hello.session != dialer_.roster()->session()) {
    return answer_of(rank, AnswerCode::kSession,
                     fmt::format("you are not the rank {} that was started with rank {}", hello.rank, rank));
  }
  if (hello.role == Role::kControl) return judge_control(static_cast<int>(hello.rank));
  const auto state = driver_.hold();
  return links_.judge(*state->logic, hello);
}

Answer ControlPlane::judge_control(int peer) {
  const int rank = settings_.rank;
  if (peer > rank && driver_.hold()->start->missing().count(peer) > 0) return answer_of(rank);
  return answer_of(rank, AnswerCode::kRank, fmt::format("rank {} is connected to rank {} already", peer, rank));
}

// Messages of any rank, by whatever way they came.
void ControlPlane::on_message(int source, const ControlBody& body) {
  if (const auto* question = std::get_if<QueryMessage>(&body)) return communicators_.on_query(source, *question);
  if (const auto* wish = std::get_if<ConnectMessage>(&body)) return links_.on_wish(source, *wish);
  if (const auto* lost = std::get_if<LostMessage>(&body); lost && lost->fate == LostMessage::Fate::kUnreached) {
    // Behind the end of a connection that has come together with it.
    return driver_.post([this, source, question = *lost] { connections_.on_question(source, question); });
  }
  const auto* abort = std::get_if<AbortMessage>(&body);
  if (abort != nullptr && abort->communicator == 0) return connections_.on_failed_start(source, *abort);
  const bool leaves = std::holds_alternative<LeaveMessage>(body);
  {
    const auto state = driver_.hold();
    if (abort != nullptr) state->start->failed_later(source, abort->error);
    state->logic->receive(ControlDriver::now(), source, body);
  }
  // An abort goes on to the neighbors before what is passed on to them next: its sender's goodbye, which would be taken
  // for the cause.
  if (abort == nullptr && !leaves) return driver_.flush_soon();
  driver_.flush();
  if (leaves) connections_.mesh().finish(source);
}

// An action for a rank or communicator that is gone by now does nothing.
void ControlPlane::carry_out(const control::Action& action) {
  if (communicators_.carry_out(action)) return;
  if (const auto* send = std::get_if<control::Send>(&action)) {
    connections_.mesh().send(send->peer, send->body);
  } else if (const auto* note = std::get_if<control::Note>(&action)) {
    settings_.logger.warn(note->text);
  } else if (const auto* dropped = std::get_if<control::Drop>(&action)) {
    connections_.drop(dropped->peer);
  } else if (const auto* cut = std::get_if<control::Cut>(&action)) {
    connections_.mesh().cut(cut->one, cut->other);
  } else if (const auto* gone = std::get_if<control::Gone>(&action)) {
    connections_.mesh().forget(gone->peer);
    const auto& roster = dialer_.roster();
    if (!gone->lost || !roster || processes_.watch(gone->peer, *roster) != ProcessWatch::Now::kEnded) return;
    driver_.hold()->logic->ended(ControlDriver::now(), gone->peer);  // flush() is under way
  }
}

void ControlPlane::begin_leave(Farewell farewell) {
  links_.end();
  if (farewell == Farewell::kGoodbye) reception_->stop();
  connections_.leave(farewell);
}

}  // namespace rondo
