#include "csrc/background.h"

#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "csrc/locked.h"

namespace rondo_torch {

namespace {

using Task = std::function<void()>;

class Background {
 public:
  void run(Task task) {
    const bool served = state_.with([&](State& state) {
      state.tasks.push_back(std::move(task));
      return state.idle >= state.tasks.size();
    });
    if (served) {
      state_.notify_one();
    } else {
      std::thread([this] { serve(); }).detach();
    }
  }

 private:
  struct State {
    std::deque<Task> tasks;
    size_t idle = 0;  // threads that wait for a task; one that was woken counts until it has the lock
  };

  void serve() {
    while (Task task = next()) task();
  }

  // Empty: none came.
  Task next() {
    state_.with([](State& state) { ++state.idle; });
    return state_.when([](const State& state) { return !state.tasks.empty(); }, kIdle,
                       [](State& state) {
                         --state.idle;
                         if (state.tasks.empty()) return Task();
                         Task task = std::move(state.tasks.front());
                         state.tasks.pop_front();
                         return task;
                       });
  }

  // Longer than a training step, so that the threads of one step serve the next.
  static constexpr std::chrono::seconds kIdle{5};

  Locked<State> state_;
};

}  // namespace

void run_in_background(std::function<void()> task) {
  // Never destroyed: its threads run until the process ends.
  static auto* background = new Background;
  background->run(std::move(task));
}

}  // namespace rondo_torch
