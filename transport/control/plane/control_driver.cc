#include "transport/control/plane/control_driver.h"

#include <algorithm>
#include <new>

#include "transport/control/earlier.h"

namespace rondo {

ControlDriver::ControlDriver(IoThread& thread, const WakeEvent& wake, Handlers handlers)
    : thread_(thread), wake_(wake), handlers_(std::move(handlers)), timer_(thread.context()) {}

void ControlDriver::know(ControlSettings logic) {
  const Held state = hold();
  state->logic.emplace(std::move(logic));
  if (state->start && !state->broken.ok()) state->start->fail(state->broken);
}

ControlLogic::Time ControlDriver::now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

// The event has happened: without memory to post, the I/O thread is rung and flushes.
void ControlDriver::request_flush() {
  try {
    thread_.post([this] { flush(); });
  } catch (const std::bad_alloc&) {
    wake_.ring();
  }
}

void ControlDriver::tell(const std::function<void(ControlLogic&)>& event) {
  {
    const Held state = hold();
    event(*state->logic);
  }
  flush();
}

void ControlDriver::tell_start(const std::function<void(StartLogic&)>& event) {
  {
    const Held state = hold();
    event(*state->start);
  }
  flush();
}

// Carries out all actions, also those that their own delivery brings about. A post behind each batch counts it as
// written: connections post their writes when something is queued, and handlers run in the order of their posts.
void ControlDriver::flush() {
  std::vector<std::pair<int, ControlBody>> messages;
  {
    const Held state = hold();
    if (!state->logic) return;
    if (state->start) messages = state->start->take_messages();
  }
  for (const auto& [peer, message] : messages) handlers_.send(peer, message);
  while (true) {
    control::Actions actions;
    uint64_t flush = 0;
    {
      const Held state = hold();
      actions = state->logic->take_actions();
      if (actions.empty()) break;
      flush = ++flushes_;
    }
    for (const control::Action& action : actions) handlers_.carry_out(action);
    thread_.post([this, flush] {  // behind the writes
      {
        const Held state = hold();
        flushes_written_ = std::max(flushes_written_, flush);  // forget_actions() may have been here
      }
      notify();
    });
  }
  arm_timer();
  notify();
}

void ControlDriver::flush_soon() {
  if (flush_posted_) return;
  thread_.post([this] {
    flush_posted_ = false;
    flush();
  });
  flush_posted_ = true;
}

void ControlDriver::forget_actions() {
  const Held state = hold();
  if (state->logic) static_cast<void>(state->logic->take_actions());
  flushes_written_ = flushes_;
}

// One timer for both machines. It is set anew only for an earlier time: one that fires too early does no harm.
void ControlDriver::arm_timer() {
  std::optional<ControlLogic::Time> next;
  {
    const Held state = hold();
    next = earlier(state->logic->next_time(), state->start ? state->start->next_time() : std::nullopt);
  }
  if (!next || (armed_for_ && *armed_for_ <= *next)) return;  // an early tick sets it anew
  armed_for_.reset();                                         // where there is no memory for it
  timer_.set(Clock::time_point(std::chrono::milliseconds(*next)), [this] {
    armed_for_.reset();
    if (hold()->start) tell_start([](StartLogic& start) { start.tick(now()); });
    const bool lost = hold()->logic->departures().anyone_lost();
    const std::vector<int> ended = lost ? handlers_.ended() : std::vector<int>{};
    tell([&ended](ControlLogic& logic) {
      for (const int rank : ended) logic.ended(now(), rank);
      logic.tick(now());
    });
  });
  armed_for_ = next;
}

}  // namespace rondo
