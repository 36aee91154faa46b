#include "transport/control/plane/open_communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "ring/base/check.h"
#include "ring/base/interrupt.h"
#include "ring/base/process_starts.h"

namespace rondo {

using State = ControlDriver::State;

// links_ first: sockets that have come early then count as this communicator's. What the logic has kept of it may bring
// actions about, which the I/O thread carries out.
void OpenCommunicators::open(uint64_t id, std::vector<int> members, CommunicatorEvents* events,
                             std::shared_ptr<Doorbell> doorbell, std::shared_ptr<Doorbell> p2p_doorbell) {
  bool idle = false;
  {
    const auto state = driver_.hold();
    ControlLogic& logic = *state->logic;
    RONDO_CHECK(open_.count(id) == 0, "a communicator is opened once");
    open_[id] = {events, doorbell, p2p_doorbell, false};
    try {
      if (links_ != nullptr) links_->open(id);
      logic.open(ControlDriver::now(), id, std::move(members));
      if (!state->broken.ok()) logic.abort(id, state->broken);
      idle = logic.idle() && !logic.find(id)->next_time();
    } catch (...) {
      logic.undo_open(id);
      open_.erase(id);  // the caller ends with its events
      throw;
    }
  }
  if (!idle) driver_.request_flush();
  doorbell->ring();  // links may have come before
  p2p_doorbell->ring();
}

// Sockets that have come for it are closed. The communicator counts as closed from here on, so later ones are refused.
void OpenCommunicators::decline(uint64_t id, const std::vector<int>& members, const Error& error) {
  bool linked = false;
  {
    const auto state = driver_.hold();
    state->logic->decline(id, members, error);
    linked = links_ != nullptr && links_->close(id);
  }
  driver_.request_flush();
  if (linked) links_->forget(id);
}

void OpenCommunicators::made(uint64_t id) {
  const auto state = driver_.hold();
  if (auto* made = state->logic->find(id)) made->life.made();
}

// The streams are asked for before the lock: the island has a lock of its own, and is never called with this one held.
bool OpenCommunicators::leave(uint64_t id, uint64_t last_sequence, const IslandStreams& island_streams) {
  std::set<int> streams = island_streams();
  bool said = false, all = true;
  {
    const auto state = driver_.hold();
    if (open_.count(id) == 0) return true;
    if (links_ != nullptr) streams.merge(links_->streams_to(id));
    said = state->logic->close(id, last_sequence, streams);
    all = state->logic->all_left(id);
  }
  if (said) driver_.request_flush();
  return all;
}

// Waits for the others' goodbyes and for this rank's messages to reach the sockets, whichever comes last: the process
// may end at once, and what it has said, an abort for example, has gone by then. An interrupt of the program ends the
// wait early.
bool OpenCommunicators::close(uint64_t id, uint64_t last_sequence, const IslandStreams& island_streams,
                              Deadline deadline) {
  bool all = true;
  try {
    leave(id, last_sequence, island_streams);
    const auto over = [&](const State& state) {
      const bool said = state.descriptors_closed || driver_.all_said();
      return open_.count(id) == 0 || (state.logic->all_left(id) && said);
    };
    do {
      all = driver_.wait_until(std::min(deadline, ControlDriver::Clock::now() + kBetweenInterruptQuestions), over);
    } while (!all && !wait_interrupted() && ControlDriver::Clock::now() < deadline);
  } catch (const std::bad_alloc&) {
    all = false;  // the others hear of it when the process leaves
  }
  forget(id);
  return all;
}

// Its events are not called any more when this returns. Another thread may have closed it meanwhile.
void OpenCommunicators::forget(uint64_t id) {
  {
    const auto state = driver_.hold();
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    found->second.events = nullptr;
  }
  driver_.wait([&](const State&) { return open_.count(id) == 0 || !open_.at(id).delivering; });  // events do not block
  try {
    bool linked = false;
    {
      const auto state = driver_.hold();
      open_.erase(id);
      linked = links_ != nullptr && links_->close(id);
      state->logic->forget(id);
    }
    if (linked) links_->forget(id);
  } catch (const std::bad_alloc&) {
    // What is kept of it answers late questions, and dials in vain.
  }
}

void OpenCommunicators::streamed(uint64_t id, int peer) {
  driver_.tell_later([&](ControlLogic& logic) { logic.streamed(id, peer); });
}

void OpenCommunicators::link_failed(uint64_t id, int peer, const Error& error) {
  driver_.tell_later([&](ControlLogic& logic) { logic.link_failed(ControlDriver::now(), id, peer, error); });
}

void OpenCommunicators::abort(uint64_t id, const Error& error) {
  driver_.tell_later([&](ControlLogic& logic) { logic.abort(id, error); });
}

// The I/O thread drives the membership; its flush wakes this thread after each event.
Shrunk OpenCommunicators::shrink(uint64_t id, std::chrono::milliseconds patience, bool opened) {
  driver_.tell_later([&](ControlLogic& logic) { logic.shrink(ControlDriver::now(), id, patience.count(), opened); });
  const auto over = [&](const State& state) { return state.descriptors_closed || !state.logic->shrinking(id); };
  while (!driver_.wait_until(ControlDriver::Clock::now() + kBetweenInterruptQuestions, over)) end_wait_if_interrupted();
  const auto state = driver_.hold();
  if (!state->broken.ok()) throw Exception(state->broken);
  return state->logic->shrunk(id);
}

std::vector<int> OpenCommunicators::absent(uint64_t id, uint64_t sequence) {
  const auto state = driver_.hold();
  const auto* open = state->logic->find(id);
  return open == nullptr ? std::vector<int>{} : open->inquiry.absent(sequence);
}

std::string OpenCommunicators::blame(uint64_t id, uint64_t sequence) {
  const auto state = driver_.hold();
  const auto* open = state->logic->find(id);
  return open == nullptr ? "" : open->inquiry.blame(ControlDriver::now(), sequence);
}

std::shared_ptr<Doorbell> OpenCommunicators::doorbell(const LinkName& name) {
  const auto state = driver_.hold();
  const auto found = open_.find(name.communicator);
  if (found == open_.end()) return nullptr;
  return name.kind == LinkKind::kData ? found->second.doorbell : found->second.p2p_doorbell;
}

// Asks the engine on the I/O thread: the caller may hold the engine's locks.
void OpenCommunicators::stalled(uint64_t id, uint64_t sequence, Ask how) {
  driver_.post([this, id, sequence, how] {
    const CallState own = ask(id, sequence);
    driver_.tell([&](ControlLogic& logic) { logic.stalled(ControlDriver::now(), id, sequence, own, how); });
  });
}

// Without the lock, since the events may call this object. close() waits while `delivering` is set, so they live as
// long as the call.
void OpenCommunicators::deliver(uint64_t id, const std::function<void(CommunicatorEvents&)>& call) {
  CommunicatorEvents* events = nullptr;
  {
    const auto state = driver_.hold();
    const auto found = open_.find(id);
    if (found == open_.end() || found->second.events == nullptr) return;
    events = found->second.events;
    found->second.delivering = true;
  }
  struct Delivery {
    ~Delivery() {
      {
        const auto state = communicators.driver_.hold();
        communicators.open_[id].delivering = false;
      }
      communicators.driver_.notify();
    }
    OpenCommunicators& communicators;
    const uint64_t id;
  } delivery{*this, id};
  call(*events);
}

bool OpenCommunicators::carry_out(const control::Action& action) {
  if (const auto* fail = std::get_if<control::Fail>(&action)) {
    deliver(fail->communicator, [&](CommunicatorEvents& events) { events.on_failure(fail->error, fail->stage); });
    return true;
  }
  if (const auto* left = std::get_if<control::PeerLeft>(&action)) {
    deliver(left->communicator,
            [&](CommunicatorEvents& events) { events.on_peer_left(left->peer, left->last_sequence); });
    return true;
  }
  return false;
}

void OpenCommunicators::wake_all() {
  for (const uint64_t id : ids()) deliver(id, [](CommunicatorEvents& events) { events.on_wake(); });
}

// The engine answers first, without the lock. Questions come many at once, where a large communicator stands still.
void OpenCommunicators::on_query(int source, const QueryMessage& question) {
  CallState own = ask(question.communicator, question.sequence);
  if (!own.takes_part(question.sequence)) own.text = waits_beside(question.communicator);
  driver_.hold()->logic->query(source, question, own);
  driver_.flush_soon();
}

// What the communicator does here; an empty state where it is not open.
CallState OpenCommunicators::ask(uint64_t id, uint64_t sequence) {
  CallState state;
  deliver(id, [&](CommunicatorEvents& events) { state = events.call_state(sequence); });
  if (links_ != nullptr) {
    state.slowest = links_->slowest();
    state.threads |= links_->anything_under_way(id);
  }
  return state;
}

// What this rank waits in elsewhere; empty: in nothing.
std::string OpenCommunicators::waits_beside(uint64_t id) {
  for (const uint64_t other : ids()) {
    std::string call;
    if (other != id) deliver(other, [&](CommunicatorEvents& events) { call = events.waits_in(); });
    if (call.empty()) continue;
    const auto state = driver_.hold();
    const auto* open = state->logic->find(other);
    return open == nullptr ? "" : fmt::format("{} of {}", call, open->members.title());
  }
  const auto state = driver_.hold();
  const auto* own = state->logic->find(id);  // not made: the start that is under way may be its own
  const bool made = own != nullptr && own->life.stage() == Stage::kUse;
  return made && starts_under_way.load() > 0 ? "init() or join() again, which makes a second group, for all ranks" : "";
}

std::vector<uint64_t> OpenCommunicators::ids() {
  const auto state = driver_.hold();
  std::vector<uint64_t> ids;
  for (const auto& [id, open] : open_) ids.push_back(id);
  return ids;
}

// Each communicator by itself: one that is closed meanwhile is left out.
std::vector<std::string> OpenCommunicators::status() {
  std::vector<std::string> all;
  for (const uint64_t id : ids()) {
    const auto whom = [&](uint64_t sequence, const CallState& messages) {
      const auto state = driver_.hold();
      const auto* open = state->logic->find(id);
      return open == nullptr ? Waiting{} : open->inquiry.waiting(ControlDriver::now(), sequence, messages);
    };
    deliver(id, [&](CommunicatorEvents& events) { all.push_back(events.status_json(whom)); });
  }
  return all;
}

std::string OpenCommunicators::metrics() {
  std::string text;
  for (const uint64_t id : ids()) {
    deliver(id, [&](CommunicatorEvents& events) { text = events.metrics_text(); });
    if (!text.empty()) break;
  }
  return text;
}

void OpenCommunicators::abort_all(ControlLogic& logic, const Error& error) {
  for (const auto& [id, open] : open_) logic.abort(id, error);
}

void OpenCommunicators::break_all() {
  const auto state = driver_.hold();
  for (const auto& [id, open] : open_) {
    if (open.events != nullptr) open.events->on_broken();
  }
}

}  // namespace rondo
