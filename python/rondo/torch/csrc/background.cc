#include "csrc/background.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "csrc/forks.h"
#include "csrc/locked.h"

namespace rondo_torch {

namespace {

using Task = std::function<void()>;

class Background {
 public:
  // Whether its threads are of this process: a forked child has none of them.
  bool usable() const { return forks_ == forks_so_far(); }

  void run(Task task) {
    const bool served = state_.with([&](State& state) {
      state.tasks.push_back(std::move(task));
      return state.idle >= state.tasks.size();
    });
    if (served) return state_.notify_one();
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::system_error&) {  // there is no thread to be had: who waits for the task would wait for ever
      if (Task left = state_.with(first)) left();
    }
  }

 private:
  struct State {
    std::deque<Task> tasks;
    size_t idle = 0;  // threads that wait for a task; one that was woken counts until it has the lock
  };

  // Empty: there is none, or another thread has taken it.
  static Task first(State& state) {
    if (state.tasks.empty()) return Task();
    Task task = std::move(state.tasks.front());
    state.tasks.pop_front();
    return task;
  }

  void serve() {
    while (Task task = next()) task();
  }

  // Empty: none came.
  Task next() {
    state_.with([](State& state) { ++state.idle; });
    return state_.when([](const State& state) { return !state.tasks.empty(); }, kIdle,
                       [](State& state) {
                         --state.idle;
                         return first(state);
                       });
  }

  // Longer than a training step, so that the threads of one step serve the next.
  static constexpr std::chrono::seconds kIdle{5};

  const int forks_ = forks_so_far();
  Locked<State> state_;
};

// Never destroyed: its threads run until the process ends.
Background& background_of_this_process() {
  static std::atomic<Background*> newest{nullptr};
  Background* known = newest.load();
  if (known != nullptr && known->usable()) return *known;
  auto* made = new Background;
  if (newest.compare_exchange_strong(known, made)) return *made;
  delete made;  // another thread has made one
  return *known;
}

}  // namespace

void run_in_background(std::function<void()> task) { background_of_this_process().run(std::move(task)); }

}  // namespace rondo_torch
