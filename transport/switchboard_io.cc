#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <type_traits>
#include <utility>

#include "ring/base/check.h"
#include "transport/socket_options.h"
#include "transport/switchboard.h"
#include "transport/switchboard_timers.h"

// The I/O thread's half of Switchboard.

namespace rondo {
namespace {

using std::chrono::milliseconds;

// A neighbour that should have dialed and has not is looked for this often while the start waits.
constexpr milliseconds kProbeInterval{500};

int circle_distance(int one, int other, int world) {
  const int forward = (other - one + world) % world;
  return std::min(forward, world - forward);
}

Answer refuse(AnswerCode code, int rank, std::string text) {
  Answer answer;
  answer.code = code;
  answer.rank = static_cast<uint32_t>(rank);
  answer.text = std::move(text);
  return answer;
}

LinkName link_of(const Hello& hello) {
  const LinkKind kind = hello.role == Role::kData ? LinkKind::kData : LinkKind::kStreamFrom;
  return {hello.communicator, kind, static_cast<int>(hello.rank), hello.lane};
}

}  // namespace

// --- the logic's actions

void Switchboard::flush() {
  if (!logic_) return;
  tell_listeners();
  while (true) {
    std::vector<ControlLogic::Action> actions;
    {
      std::lock_guard lock(mutex_);
      actions = logic_->take_actions();
    }
    if (actions.empty()) break;
    for (const ControlLogic::Action& action : actions) carry_out(action);
  }
  arm_timer();
  changed_.notify_all();
}

void Switchboard::carry_out(const ControlLogic::Action& action) {
  const auto rank = static_cast<uint32_t>(settings_.rank);
  if (const auto* send = std::get_if<ControlLogic::Send>(&action)) {
    send_frame({rank, static_cast<uint32_t>(send->peer), send->body});
  } else if (const auto* fail = std::get_if<ControlLogic::Fail>(&action)) {
    deliver(fail->communicator, [&](CommunicatorEvents& events) { events.on_failure(fail->error); });
  } else if (const auto* left = std::get_if<ControlLogic::PeerLeft>(&action)) {
    deliver(left->communicator,
            [&](CommunicatorEvents& events) { events.on_peer_left(left->peer, left->last_sequence); });
  } else if (const auto* note = std::get_if<ControlLogic::Note>(&action)) {
    settings_.logger.warn(note->text);
  }
}

void Switchboard::arm_timer() {
  std::optional<ControlLogic::Time> next;
  {
    std::lock_guard lock(mutex_);
    next = logic_->next_time();
    if (const auto start = start_->next_time(); start) next = next ? std::min(*next, *start) : *start;
  }
  if (!next) return;
  timers_->logic.expires_at(Clock::time_point(milliseconds(*next)));
  timers_->logic.async_wait([this](asio::error_code failure) {
    if (failure) return;
    tell_start([](StartLogic& start) { start.tick(now()); });
    tell_logic([](ControlLogic& logic) { logic.tick(now()); });
  });
}

void Switchboard::deliver(uint64_t communicator, const std::function<void(CommunicatorEvents&)>& call) {
  CommunicatorEvents* events = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = ears_.find(communicator);
    if (found == ears_.end() || found->second.events == nullptr) return;
    events = found->second.events;
    found->second.delivering = true;  // close() waits for the end of the call
  }
  call(*events);
  {
    std::lock_guard lock(mutex_);
    ears_[communicator].delivering = false;
  }
  changed_.notify_all();
}

CallState Switchboard::ask(uint64_t communicator, uint64_t sequence) {
  CallState state;
  deliver(communicator, [&](CommunicatorEvents& events) { state = events.call_state(sequence); });
  return state;
}

void Switchboard::tell_logic(const std::function<void(ControlLogic&)>& event) {
  {
    std::lock_guard lock(mutex_);
    event(*logic_);
  }
  flush();
}

// --- who may come in

std::optional<Answer> Switchboard::judge(const Hello& hello) {
  const int rank = settings_.rank;
  if (hello.version != kWireVersion) {
    return refuse(AnswerCode::kVersion, rank,
                  fmt::format("rank {} speaks version {} of the wire format, you speak version {}", rank, kWireVersion,
                              hello.version));
  }
  if (hello.job_id != settings_.job_id) {
    return refuse(AnswerCode::kJob, rank,
                  fmt::format("this is job \"{}\", not \"{}\"", settings_.job_id, hello.job_id));
  }
  if (hello.world != static_cast<uint32_t>(settings_.world)) {
    return refuse(
        AnswerCode::kWorld, rank,
        fmt::format("rank {} was started in a world of {}, you in a world of {}", rank, settings_.world, hello.world));
  }
  if (hello.rank >= hello.world || hello.rank == static_cast<uint32_t>(rank)) {
    return refuse(AnswerCode::kRank, rank,
                  fmt::format("you say that you are rank {}, and this is rank {} in a world of {}", hello.rank, rank,
                              settings_.world));
  }
  if (hello.destination != static_cast<uint32_t>(rank)) {
    return refuse(AnswerCode::kRank, rank, fmt::format("this is rank {}, not rank {}", rank, hello.destination));
  }
  if (hello.shared_hash != settings_.config.shared_hash()) {
    return refuse(AnswerCode::kShared, rank, "settings that must be equal on all ranks differ");
  }
  // After a failed start others may connect still, to hear why.
  if (leaving_ && (leaving_ == Farewell::kGoodbye || hello.role != Role::kControl)) {
    return refuse(AnswerCode::kForbidden, rank, fmt::format("rank {} is leaving", rank));
  }
  if (!roster_) return std::nullopt;
  if (hello.session != roster_->session()) {
    return refuse(AnswerCode::kSession, rank,
                  fmt::format("you are not the rank {} that was started with rank {}", hello.rank, rank));
  }
  return judge_link(hello);
}

std::optional<Answer> Switchboard::judge_link(const Hello& hello) {
  const int rank = settings_.rank;
  const int peer = static_cast<int>(hello.rank);
  Answer welcome;
  welcome.rank = static_cast<uint32_t>(rank);
  std::lock_guard lock(mutex_);
  if (hello.role == Role::kControl) {
    if (start_->missing().count(peer) && peer > rank) return welcome;
    return refuse(AnswerCode::kRank, rank, fmt::format("rank {} is connected to rank {} already", peer, rank));
  }
  if (logic_->gone(peer)) return refuse(AnswerCode::kForbidden, rank, fmt::format("rank {} has left", peer));
  const bool data = hello.role == Role::kData;
  if (data && (peer < rank || hello.connections != settings_.config.connections)) {
    return refuse(AnswerCode::kForbidden, rank, "this is not how a data link is made");
  }
  switch (table_.fits(link_of(hello), hello.connection)) {
    case LinkTable::Fit::kYes:
      return welcome;
    case LinkTable::Fit::kLater:
      return refuse(AnswerCode::kBusy, rank, "too many links wait to be opened");
    case LinkTable::Fit::kNo:
      break;
  }
  return refuse(AnswerCode::kForbidden, rank, "this link exists already, or its communicator is closed");
}

void Switchboard::welcome(const Hello& hello, Descriptor socket) {
  if (hello.role == Role::kControl) {
    add_control(static_cast<int>(hello.rank), std::move(socket));
  } else {
    add_link(link_of(hello), hello.connection, std::move(socket));
  }
}

void Switchboard::add_control(int peer, Descriptor socket) {
  try {
    tune_control_socket(socket.get());
  } catch (const Exception& failure) {
    return tell_start([&](StartLogic& start) { start.fail(failure.error()); });
  }
  controls_[peer] = std::make_unique<ControlConnection>(
      thread_.context(), std::move(socket), [this, peer](ControlFrame frame) { on_frame(peer, std::move(frame)); },
      [this, peer](const std::string& why) { on_control_end(peer, why); });
  {
    std::lock_guard lock(mutex_);
    ++live_controls_;
  }
  probes_.erase(peer);
  tell_start([peer](StartLogic& start) { start.connected(peer); });
  if (leaving_) let_go(peer);
}

void Switchboard::add_link(const LinkName& name, uint32_t index, Descriptor socket) {
  try {
    tune_data_socket(socket.get(), tuning_of(settings_.config));
  } catch (const Exception& failure) {
    return link_dial_failed(name, failure.error());
  }
  bool complete = false;
  std::shared_ptr<Doorbell> bell;
  {
    std::lock_guard lock(mutex_);
    if (table_.fits(name, index) != LinkTable::Fit::kYes) return;  // closed meanwhile
    complete = table_.add(name, index, std::move(socket));
    if (const auto found = ears_.find(name.communicator); found != ears_.end()) {
      bell = name.kind == LinkKind::kData ? found->second.doorbell : found->second.p2p_doorbell;
    }
  }
  if (complete && bell) bell->ring();
}

Hello Switchboard::hello_to(int peer, Role role) const {
  Hello hello;
  hello.role = role;
  hello.rank = static_cast<uint32_t>(settings_.rank);
  hello.destination = static_cast<uint32_t>(peer);
  hello.world = static_cast<uint32_t>(settings_.world);
  hello.shared_hash = settings_.config.shared_hash();
  hello.session = roster_->session();
  hello.job_id = settings_.job_id;
  return hello;
}

DialOrder Switchboard::order_to(int peer, Clock::time_point deadline) const {
  DialOrder order;
  order.peer = peer_name(peer);
  order.endpoints = roster_->card(peer).endpoints;
  order.tuning = tuning_of(settings_.config);
  order.deadline = deadline;
  order.attempt = milliseconds(settings_.config.handshake_timeout_ms);
  return order;
}

// --- the start

void Switchboard::begin_start(Clock::time_point deadline) {
  reception_->reconsider();
  for (int peer : control_neighbours(settings_.rank, settings_.world)) {
    if (peer < settings_.rank) dial_control(peer, deadline);
  }
  probe_missing(deadline);
}

void Switchboard::dial_control(int peer, Clock::time_point deadline) {
  DialOrder order = order_to(peer, deadline);
  order.hello = hello_to(peer, Role::kControl);
  control_dials_[peer] = std::make_unique<Dial>(thread_.context(), std::move(order), [this, peer](DialResult result) {
    control_dials_.erase(peer);
    if (!result.error.ok()) return control_failed(peer, result.error);
    add_control(peer, std::move(result.socket));
  });
}

// Higher ranks dial this one. One that died after it was listed never will, and nobody else may notice: so their
// listeners are knocked at; after a failure too, while this rank waits for them.
void Switchboard::probe_missing(Clock::time_point deadline) {
  timers_->probe.expires_after(kProbeInterval);
  timers_->probe.async_wait([this, deadline](asio::error_code failure) {
    std::set<int> missing;
    {
      std::lock_guard lock(mutex_);
      if (failure || start_->phase() == StartLogic::Phase::kDone) return;
      missing = start_->missing();
    }
    for (int peer : missing) {
      if (peer < settings_.rank || probes_.count(peer)) continue;
      probes_[peer] =
          std::make_unique<Dial>(thread_.context(), order_to(peer, deadline), [this, peer](DialResult result) {
            probes_.erase(peer);
            if (result.error.code == ErrorCode::kPeerLost) control_failed(peer, result.error);
          });
    }
    probe_missing(deadline);
  });
}

void Switchboard::control_failed(int peer, const Error& error) {
  if (error.code == ErrorCode::kPeerLost) {
    tell_start([&](StartLogic& start) { start.lost(now(), peer, error.message); });
  } else if (error.code != ErrorCode::kTimeout) {  // connect() has the same deadline, and names all that are missing
    tell_start([&](StartLogic& start) { start.fail({ErrorCode::kBootstrap, error.message, {peer}}); });
  }
}

void Switchboard::tell_start(const std::function<void(StartLogic&)>& event) {
  {
    std::lock_guard lock(mutex_);
    event(*start_);
  }
  flush();
}

void Switchboard::tell_listeners() {
  std::vector<int> listeners;
  Error error;
  {
    std::lock_guard lock(mutex_);
    listeners = start_->take_listeners();
    error = start_->error();
  }
  for (const int peer : listeners) {
    send_frame({static_cast<uint32_t>(settings_.rank), static_cast<uint32_t>(peer), AbortMessage{0, 0, error}});
  }
}

// --- control frames

void Switchboard::on_frame(int peer, ControlFrame frame) {
  const auto world = static_cast<uint32_t>(settings_.world);
  const bool full_mesh = settings_.world <= kMaxFullMesh;
  const bool honest = frame.source < world && frame.destination < world &&
                      frame.source != static_cast<uint32_t>(settings_.rank) &&
                      (!full_mesh || frame.source == static_cast<uint32_t>(peer));
  if (!honest) return on_control_end(peer, "it sent a control message in another rank's name");
  if (frame.destination != static_cast<uint32_t>(settings_.rank)) return send_frame(frame);
  on_message(static_cast<int>(frame.source), frame.body);
}

void Switchboard::on_message(int source, const ControlBody& body) {
  if (const auto* question = std::get_if<QueryMessage>(&body)) {
    const CallState own = ask(question->communicator, question->sequence);
    return tell_logic([&](ControlLogic& logic) { logic.query(source, *question, own); });
  }
  if (const auto* wish = std::get_if<ConnectMessage>(&body)) {
    const LinkName name{wish->communicator, LinkKind::kData, source, wish->lane};
    std::unique_lock lock(mutex_);
    const bool first = source < settings_.rank && !logic_->gone(source) && table_.want(name);
    lock.unlock();
    if (first) dial_link(name);
    return;
  }
  if (const auto* abort = std::get_if<AbortMessage>(&body); abort && abort->communicator == 0) {
    settings_.logger.info(fmt::format("{} failed to start: {}", peer_name(source), abort->error.message));
    on_failed_start(source, *abort);
    return let_go(source);
  }
  if (const auto* abort = std::get_if<AbortMessage>(&body)) {
    tell_start([&](StartLogic& start) { start.failed_later(source, abort->error); });
  }
  tell_logic([&](ControlLogic& logic) { logic.receive(now(), source, body); });
  if (std::holds_alternative<LeaveMessage>(body)) let_go(source);
}

void Switchboard::on_failed_start(int source, const AbortMessage& abort) {
  bool done = false;
  {
    std::lock_guard lock(mutex_);
    done = start_->phase() == StartLogic::Phase::kDone;
  }
  if (done) return tell_logic([&](ControlLogic& logic) { logic.receive(now(), source, abort); });
  tell_start([&](StartLogic& start) { start.gave_up(source, abort.error); });
}

// Nothing will be said to it any more: the end of our side lets it end without waiting.
void Switchboard::let_go(int peer) {
  if (const auto found = controls_.find(peer); found != controls_.end()) found->second->finish();
}

void Switchboard::on_control_end(int peer, const std::string& why) {
  if (controls_.erase(peer) == 0) return;
  {
    std::lock_guard lock(mutex_);
    --live_controls_;
  }
  tell_logic([&](ControlLogic& logic) {
    if (!leaving_) logic.connection_ended(now(), peer, why);
  });
  tell_start([&](StartLogic& start) { start.lost(now(), peer, why); });
}

int Switchboard::next_hop(int destination) const {
  if (controls_.count(destination)) return destination;
  if (settings_.world <= kMaxFullMesh) return -1;
  // Greedy: every hop is nearer on the circle of ranks, so no frame can go round for ever.
  int best = -1;
  int nearest = circle_distance(settings_.rank, destination, settings_.world);
  for (const auto& [peer, control] : controls_) {
    const int distance = circle_distance(peer, destination, settings_.world);
    if (distance >= nearest) continue;
    nearest = distance;
    best = peer;
  }
  return best;
}

void Switchboard::send_frame(const ControlFrame& frame) {
  const auto found = controls_.find(next_hop(static_cast<int>(frame.destination)));
  if (found != controls_.end()) found->second->send(frame);
}

// --- data links

void Switchboard::bring_about(const LinkName& name) {
  if (name.kind == LinkKind::kStreamTo || name.peer < settings_.rank) return dial_link(name);
  send_frame({static_cast<uint32_t>(settings_.rank), static_cast<uint32_t>(name.peer),
              ConnectMessage{name.communicator, static_cast<uint16_t>(name.lane)}});
}

void Switchboard::dial_link(const LinkName& name) {
  if (leaving_) return;
  const bool data = name.kind == LinkKind::kData;
  const uint32_t connections = data ? settings_.config.connections : 1;
  const auto deadline = Clock::now() + 2 * milliseconds(settings_.config.handshake_timeout_ms);
  for (uint32_t index = 0; index < connections; ++index) {
    DialOrder order = order_to(name.peer, deadline);
    Hello hello = hello_to(name.peer, data ? Role::kData : Role::kStream);
    hello.communicator = name.communicator;
    hello.lane = static_cast<uint16_t>(name.lane);
    hello.connection = static_cast<uint16_t>(index);
    hello.connections = static_cast<uint16_t>(connections);
    order.hello = std::move(hello);
    const std::pair key(name, index);
    link_dials_[key] = std::make_unique<Dial>(thread_.context(), std::move(order), [this, key](DialResult result) {
      link_dials_.erase(key);
      if (!result.error.ok()) return link_dial_failed(key.first, result.error);
      add_link(key.first, key.second, std::move(result.socket));
    });
  }
}

void Switchboard::link_dial_failed(const LinkName& name, const Error& error) {
  // The rest of the link is of no use.
  std::erase_if(link_dials_, [&](const auto& entry) { return entry.first.first == name; });
  const Error network{ErrorCode::kNetwork, error.message, {name.peer}};
  bool open = false;
  {
    std::lock_guard lock(mutex_);
    open = logic_->is_open(name.communicator);
  }
  if (open) {
    return tell_logic([&](ControlLogic& logic) { logic.link_failed(now(), name.communicator, name.peer, network); });
  }
  // Only the other side has opened the communicator yet: it asked for the link, so it is told; and here it fails when
  // it is opened.
  const AbortMessage message{name.communicator,
                             0,
                             {ErrorCode::kNetwork,
                              fmt::format("the data connection between {} and {} failed: {}", peer_name(settings_.rank),
                                          peer_name(name.peer), error.message),
                              {name.peer}}};
  send_frame({static_cast<uint32_t>(settings_.rank), static_cast<uint32_t>(name.peer), message});
  tell_logic([&](ControlLogic& logic) { logic.receive(now(), name.peer, message); });
}

void Switchboard::begin_leave(Farewell farewell) {
  leaving_ = farewell;
  link_dials_.clear();
  if (farewell == Farewell::kGoodbye) {
    reception_->stop();
    control_dials_.clear();
    probes_.clear();
    timers_->probe.cancel();
    tell_logic([](ControlLogic& logic) { logic.leave(); });
  } else {
    flush();  // says why, before nothing more can be said
  }
  for (const auto& [peer, control] : controls_) control->finish();
  changed_.notify_all();
}

}  // namespace rondo
