#include <optional>
#include <thread>

#include "tests/life/rank.h"

namespace rondo::life {

// What all calls with equal bits have in common: not where the buffers lie, but whether they are registered. "": no
// call need have the bits of this one again.
std::string Thread::equal_calls(const Flight& flight, const Member& member) const {
  const Step& step = *flight.step;
  if (step.word("data") != "random" || step.number("residual") != 0 || life_.has_setting("RONDO_FOLD=any")) return "";
  std::string text = flight.in_batch ? "line " + std::to_string(step.line) : step.verb;
  for (const int rank : member.ranks) text += " " + std::to_string(rank);
  for (const char* key : {"algorithm", "count", "counts", "dtype", "op", "salt", "stochastic", "wire"}) {
    text += " " + step.word(key);
  }
  if (step.verb == "reduce") text += " " + step.word("root");
  bool all_registered = true;
  for (int m = 0; m < member.size(); ++m) {
    const bool out = step.of_member("out", m, "p")[0] == 'r';
    const bool in = step.number("place") != 0 ? out : step.of_member("in", m, "p")[0] == 'r';
    text += std::string(" ") + (in ? "r" : "p") + (out ? "r" : "p");
    all_registered = all_registered && in && (out || step.verb != "all_reduce");  // as window plans need them
  }
  // After calls of this size with plain buffers it folds as those do (docs/numerics.md).
  const bool after_plain = all_registered && !step.has("algorithm") && member.size() > 2;
  return after_plain ? "" : text;
}

void Thread::check(Flight& flight, Member& member) {
  now_ = flight.step;
  if (const std::string wrong = flight.check(); !wrong.empty()) fail(wrong);
  if (flight.rounded.data == nullptr || flight.step->number("bits", 1) == 0) return;
  const uint64_t hash = hash_of(flight.rounded.data, flight.rounded.bytes);
  if (flight.rounded.everywhere) report_.bits(flight.step->line, member.ranks[0], hash);
  const std::string calls = equal_calls(flight, member);
  if (!calls.empty() && !report_.same_again(calls, hash)) fail("equal calls have other bits than before");
}

void Thread::await_end(Slot& state) {
  state.ended = std::make_shared<std::atomic<int>>(0);
  state.handle->on_end([ended = state.ended] {
    ended->fetch_add(1);
    ended->notify_all();
  });
}

void Thread::collective(const Step& step, Member& member) {
  const auto slot = static_cast<int>(step.number("slot"));
  if (slot != 0) finish(slot);
  Flight flight = make_flight(step, seat(step, member), slot, 0, memory_);
  std::optional<testing::FloatMode> mode(floats_);
  if (slot == 0) {
    const Error error = member.group->run(flight.call);
    mode.reset();
    must(error, "");
    return check(flight, member);
  }
  Slot& state = slots_[slot];
  must(member.group->start(flight.call, &state.handle), "start: ");
  state.flights.push_back(std::move(flight));
  state.member = &member;
  state.line = step.line;
  if (step.number("end") != 0) await_end(state);
}

void Thread::end_work(const Step& step, Member&) {
  const auto slot = static_cast<int>(step.number("slot"));
  if (step.verb != "drop_work") return finish(slot, step.verb == "poll");
  const auto found = slots_.find(slot);
  if (found == slots_.end() || found->second.handle == nullptr) return;
  if (found->second.ended == nullptr) await_end(found->second);
  found->second.handle.reset();
}

void Thread::finish(int slot, bool poll) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  Slot& state = found->second;
  if (state.handle != nullptr) {
    const testing::FloatMode mode(floats_);
    while (poll && !state.handle->done()) std::this_thread::yield();
    must(state.handle->wait(), "the work of line " + std::to_string(state.line) + ": ");
  }
  if (state.ended != nullptr) {
    state.ended->wait(0);
    if (state.ended->load() != 1) fail("its end function was called more than once");
  }
  for (Flight& flight : state.flights) check(flight, *state.member);
  slots_.erase(slot);
}

void Thread::finish_all() {
  for (int slot = 1; slot < kSlots; ++slot) finish(slot);
}

void Thread::batch_messages(const Step& step, Member& member, int slot, std::vector<Flight>& flights) {
  MessageList list(step, seat(step, member));
  for (size_t k = 0; k < list.size(); ++k) {
    if (!list.sends(k) && !list.receives(k)) continue;
    flights.push_back(list.sends(k) ? list.send(k, slot, memory_) : list.receive(k, slot, memory_));
    must(member.group->run(flights.back().call), print(step) + ": ");
    if (list.sends(k)) continue;
    if (const std::string wrong = list.arrived(flights.back(), k); !wrong.empty()) fail(wrong);
  }
}

void Thread::batch(const Step& step, Member& member) {
  const auto slot = static_cast<int>(step.number("slot"));
  if (slot != 0) finish(slot);
  finish_messages();
  std::vector<Flight> flights;
  must(member.group->batch_begin(), "batch_begin: ");
  int index = 0;
  for (const Step& inner : step.inner) {
    ++reached_[inner.line];
    ++index;
    if (is_collective(inner.verb)) {
      flights.push_back(make_flight(inner, seat(inner, member), slot, index, memory_));
      must(member.group->run(flights.back().call), print(inner) + ": ");
    } else if (inner.verb == "exchange") {
      batch_messages(inner, member, slot + 1000 * index, flights);
    }
  }
  std::optional<testing::FloatMode> mode(floats_);
  if (slot == 0) {
    const Error error = member.group->batch_end(nullptr);
    mode.reset();
    must(error, "batch_end: ");
    for (Flight& flight : flights) check(flight, member);
    return;
  }
  Slot& state = slots_[slot];
  must(member.group->batch_end(&state.handle), "batch_end: ");
  state.flights = std::move(flights);
  state.is_batch = true;
  state.member = &member;
  state.line = step.line;
}

}  // namespace rondo::life
