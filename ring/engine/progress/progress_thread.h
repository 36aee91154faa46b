#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ring/engine/progress/progress_engine.h"

namespace rondo {

// One thread a join that progresses operations that no thread waits for, of all communicators. It polls while
// things move, and sleeps on the doorbells of the engines otherwise.
class ProgressThread {
 public:
  explicit ProgressThread(WaitPolicy policy) : policy_(policy) {}
  ~ProgressThread();  // stops the thread
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Starts the thread, unless it runs: before anything is submitted that is to be left to it. Throws
  // Exception(kSystem). Any thread.
  void start();
  // The engine may want the progress thread now. Any thread; never blocks.
  void poke(std::shared_ptr<ProgressEngine> engine);

 private:
  void run();
  std::vector<std::shared_ptr<ProgressEngine>> wanting();
  bool drive_all(const std::vector<std::shared_ptr<ProgressEngine>>& engines, Pass pass);
  void rest(const std::vector<std::shared_ptr<ProgressEngine>>& engines);

  WaitPolicy policy_;
  std::mutex mutex_;  // of engines_ and the start of the thread
  std::vector<std::shared_ptr<ProgressEngine>>
      engines_;  // shared: an operation under way outlives its communicator's handle
  std::thread thread_;
  Doorbell bell_;
  std::atomic<bool> stopping_{false};
};

}  // namespace rondo
