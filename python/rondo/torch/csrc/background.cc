#include "csrc/background.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace rondo_torch {

namespace {

class Background {
 public:
  void run(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ >= tasks_.size()) {
      wake_.notify_one();
    } else {
      std::thread([this] { serve(); }).detach();
    }
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      const bool found = wake_.wait_for(lock, kIdle, [this] { return !tasks_.empty(); });
      --idle_;
      if (!found) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it holds is freed without the lock
      lock.lock();
    }
  }

  // Longer than a training step, so that the threads of one step serve the next.
  static constexpr std::chrono::seconds kIdle{5};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0;  // threads that wait for a task; one that was woken counts until it has the lock
};

}  // namespace

void run_in_background(std::function<void()> task) {
  // Never destroyed: its threads run until the process ends.
  static auto* background = new Background;
  background->run(std::move(task));
}

}  // namespace rondo_torch
