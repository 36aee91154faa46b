#include "transport/control/control_plane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "ring/base/check.h"
#include "ring/base/interrupt.h"

namespace rondo {
namespace {

// A start that waits says so this often, as rank 0 does while cards are missing (roster.cc).
constexpr std::chrono::seconds kMissingLogInterval{10};

}  // namespace

// From a thread of the program: the I/O thread carries out what follows from the event.
template <typename Event>
void ControlPlane::tell_later(Event&& event) {
  {
    std::lock_guard lock(mutex_);
    event(*logic_);
  }
  request_flush();
}

// A stream whose opener has left is waited for through an outage that the ranks survive (the suspicion), and a
// handshake.
void ControlPlane::know(const Roster& roster) {
  names_ = roster.names();
  ControlSettings logic;
  logic.rank = settings_.rank;
  logic.names = names_;
  logic.neighbors = control_neighbors(settings_.rank, settings_.world);
  logic.liveness = {settings_.config.heartbeat_ms, settings_.config.suspicion_ms};
  logic.stream_ms = settings_.config.suspicion_ms + settings_.config.handshake_timeout_ms;
  logic.blame_after_ms = Liveness::kWarnHeartbeats * settings_.config.heartbeat_ms;
  std::lock_guard lock(mutex_);
  start_.emplace(StartLogic::Settings{settings_.rank, logic.names, logic.neighbors});
  logic_.emplace(std::move(logic));  // last: the I/O thread asks for it
  if (!broken_.ok()) start_->fail(broken_);
}

void ControlPlane::connect(Roster roster, Clock::time_point deadline) {
  thread_.post([this, deadline, shared = std::make_shared<Roster>(std::move(roster))] {
    dialer_.know(std::move(*shared));
    begin_start(deadline);
  });
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return start_->phase() != StartLogic::Phase::kRunning; };
  auto next_log = Clock::now() + kMissingLogInterval;
  while (!changed_.wait_for(lock, kBetweenInterruptQuestions, ended)) {  // fail_late() ends it
    lock.unlock();
    end_wait_if_interrupted();
    lock.lock();
    if (Clock::now() < next_log) continue;
    next_log = Clock::now() + kMissingLogInterval;
    settings_.logger.warn(fmt::format("waiting for the control connections of {}", missing_names()));
  }
  if (start_->phase() == StartLogic::Phase::kFailed) throw Exception(start_->error());
}

Error ControlPlane::cause_of(const Error& error) {
  // What came of a death may be noticed before the death, by as much as a failed link may (fabric.h).
  constexpr std::chrono::milliseconds kGrace{100};
  std::unique_lock lock(mutex_);
  if (start_->phase() == StartLogic::Phase::kFailed) return error;  // connect() has told
  changed_.wait_for(lock, kGrace, [this] { return logic_->departures().anyone_lost(); });
  return logic_->departures().start_failure().value_or(error);
}

void ControlPlane::fail_start(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    start_->fail_after(error);
  }
  request_flush();
}

// Without memory to post the farewell is left in wanted_farewell_, and the I/O thread finds it when it is rung.
void ControlPlane::leave(Farewell farewell, Clock::time_point deadline) {
  try {
    thread_.post([this, farewell] { begin_leave(farewell); });
  } catch (const std::bad_alloc&) {
    std::lock_guard lock(mutex_);
    wanted_farewell_ = farewell;
    ring_io_thread();
  }
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline,
                      [this] { return descriptors_closed_ || (live_controls_ == 0 && start_->untold().empty()); });
}

bool ControlPlane::anyone_lost() const {
  std::lock_guard lock(mutex_);
  return logic_->departures().anyone_lost();
}

bool ControlPlane::gone(int peer) const {
  std::lock_guard lock(mutex_);
  return logic_->departures().gone(peer);
}

// table_ first: sockets that have come early then count as this communicator's. What the logic has kept of it may bring
// actions about, which the I/O thread carries out.
void ControlPlane::open(uint64_t id, std::vector<int> members, CommunicatorEvents* events,
                        std::shared_ptr<Doorbell> doorbell, std::shared_ptr<Doorbell> p2p_doorbell) {
  bool idle = false;
  {
    std::lock_guard lock(mutex_);
    RONDO_CHECK(communicators_.count(id) == 0, "a communicator is opened once");
    communicators_[id] = {events, doorbell, p2p_doorbell, false};
    try {
      table_.open(id);
      logic_->open(now(), id, std::move(members));
      if (!broken_.ok()) logic_->abort(id, broken_);
      idle = logic_->idle() && !logic_->find(id)->next_time();
    } catch (...) {
      logic_->undo_open(id);
      communicators_.erase(id);  // the caller ends with its events
      throw;
    }
  }
  if (!idle) request_flush();
  doorbell->ring();  // links may have come before
  p2p_doorbell->ring();
}

// Sockets that have come for it are closed. The communicator counts as closed from here on, so later ones are refused.
void ControlPlane::decline(uint64_t id, const std::vector<int>& members, const Error& error) {
  bool linked = false;
  {
    std::lock_guard lock(mutex_);
    logic_->decline(id, members, error);
    linked = table_.close(id);
  }
  request_flush();
  if (linked) thread_.post([this, id] { dialer_.forget_communicator(id); });
}

void ControlPlane::made(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (auto* open = logic_->find(id)) open->life.made();
}

void ControlPlane::streamed(uint64_t id, int peer) {
  tell_later([&](ControlLogic& logic) { logic.streamed(id, peer); });
}

// The streams are asked for before the lock: the island has a lock of its own, and is never called with this one held.
bool ControlPlane::leave(uint64_t id, uint64_t last_sequence, const IslandStreams& island_streams) {
  std::set<int> streams = island_streams();
  bool said = false, all = true;
  {
    std::lock_guard lock(mutex_);
    if (communicators_.count(id) == 0) return true;
    streams.merge(table_.streams(id, LinkKind::kStreamTo));
    said = logic_->close(id, last_sequence, streams);
    all = logic_->all_left(id);
  }
  if (said) request_flush();
  return all;
}

// Waits for the others' goodbyes and for this rank's messages to reach the sockets, whichever comes last. An interrupt
// of the program ends the wait early.
bool ControlPlane::close(uint64_t id, uint64_t last_sequence, const IslandStreams& island_streams,
                         Clock::time_point deadline) {
  bool all = true;
  try {
    leave(id, last_sequence, island_streams);
    std::unique_lock lock(mutex_);
    if (communicators_.count(id) == 0) return true;
    // The process may end at once: what it has said, an abort for example, has gone by then.
    const auto said = [&] { return descriptors_closed_ || (logic_->idle() && flushes_written_ == flushes_); };
    const auto over = [&] { return logic_->all_left(id) && said(); };
    do {
      all = changed_.wait_until(lock, std::min(deadline, Clock::now() + kBetweenInterruptQuestions), over);
      lock.unlock();
      if (all || wait_interrupted()) break;
      lock.lock();
    } while (Clock::now() < deadline);
  } catch (const std::bad_alloc&) {
    all = false;  // the others hear of it when the process leaves
  }
  forget(id);
  return all;
}

// Its events are not called any more when this returns.
void ControlPlane::forget(uint64_t id) {
  std::unique_lock lock(mutex_);
  const auto found = communicators_.find(id);
  if (found == communicators_.end()) return;  // closed by another thread meanwhile
  found->second.events = nullptr;
  changed_.wait(
      lock, [&] { return communicators_.count(id) == 0 || !communicators_.at(id).delivering; });  // events do not block
  communicators_.erase(id);
  const bool linked = table_.close(id);
  try {
    logic_->forget(id);
    lock.unlock();
    if (linked) thread_.post([this, id] { dialer_.forget_communicator(id); });
  } catch (const std::bad_alloc&) {
    // What is kept of it answers late questions, and dials in vain.
  }
}

// Asked again and again by a flow that waits; only the first wish brings the link about. A communicator that has failed
// wishes for nothing.
std::vector<SecuredSocket> ControlPlane::take(const LinkName& name) {
  {
    std::lock_guard lock(mutex_);
    std::vector<SecuredSocket> sockets = table_.take(name);
    if (!sockets.empty()) return sockets;
    if (!logic_->sound(name.communicator) || logic_->departures().gone(name.peer)) return {};
    if (!table_.want(name)) return {};
  }
  thread_.post([this, name] { bring_about(name); });
  return {};
}

std::optional<std::pair<int, SecuredSocket>> ControlPlane::take_stream_from(uint64_t communicator) {
  std::lock_guard lock(mutex_);
  return table_.take_stream_from(communicator);
}

std::shared_ptr<Doorbell> ControlPlane::doorbell(const LinkName& name) const {
  std::lock_guard lock(mutex_);
  const auto found = communicators_.find(name.communicator);
  if (found == communicators_.end()) return nullptr;
  return name.kind == LinkKind::kData ? found->second.doorbell : found->second.p2p_doorbell;
}

void ControlPlane::stalled(uint64_t id, uint64_t sequence, Ask how) {
  // Asks the engine on the I/O thread: the caller may hold the engine's locks.
  thread_.post([this, id, sequence, how] {
    const CallState own = ask(id, sequence);
    tell_logic([&](ControlLogic& logic) { logic.stalled(now(), id, sequence, own, how); });
  });
}

std::vector<int> ControlPlane::absent(uint64_t id, uint64_t sequence) const {
  std::lock_guard lock(mutex_);
  const auto* open = logic_->find(id);
  return open == nullptr ? std::vector<int>{} : open->inquiry.absent(sequence);
}

void ControlPlane::link_failed(uint64_t id, int peer, const Error& error) {
  tell_later([&](ControlLogic& logic) { logic.link_failed(now(), id, peer, error); });
}

void ControlPlane::abort(uint64_t id, const Error& error) {
  tell_later([&](ControlLogic& logic) { logic.abort(id, error); });
}

std::string ControlPlane::blame(uint64_t id, uint64_t sequence) const {
  std::lock_guard lock(mutex_);
  const auto* open = logic_->find(id);
  return open == nullptr ? "" : open->inquiry.blame(now(), sequence);
}

// The I/O thread drives the membership; its flush wakes this thread after each event.
Shrunk ControlPlane::shrink(uint64_t id, std::chrono::milliseconds patience, bool opened) {
  tell_later([&](ControlLogic& logic) { logic.shrink(now(), id, patience.count(), opened); });
  std::unique_lock lock(mutex_);
  const auto ended = [&] { return descriptors_closed_ || !logic_->shrinking(id); };
  while (!changed_.wait_for(lock, kBetweenInterruptQuestions, ended)) {
    lock.unlock();
    end_wait_if_interrupted();
    lock.lock();
  }
  if (!broken_.ok()) throw Exception(broken_);
  return logic_->shrunk(id);
}

ControlLogic::Time ControlPlane::now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

// The event has happened: without memory to post, the I/O thread is rung and flushes in wake().
void ControlPlane::request_flush() {
  try {
    thread_.post([this] { flush(); });
  } catch (const std::bad_alloc&) {
    ring_io_thread();
  }
}

// Wakes the I/O thread without memory: wake() looks at all that there may be to do.
void ControlPlane::ring_io_thread() {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

// Requires the lock.
std::string ControlPlane::missing_names() const {
  std::vector<std::string> names;
  for (int peer : start_->missing()) names.push_back(peer_name(peer));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace rondo
