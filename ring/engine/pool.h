#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ring/engine/driver.h"

namespace rondo {

// One thread a join that drives what nobody waits for: asynchronous operations of all communicators. It polls while
// things move, and sleeps on the doorbells of the drivers otherwise.
class Pool {
 public:
  explicit Pool(Patience patience) : patience_(patience) {}
  ~Pool();  // stops the thread
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Starts the thread, unless it runs: before anything is submitted that is to be left to it. Throws
  // Exception(kSystem). Any thread.
  void start();
  // The driver may want the pool now. Any thread; never blocks.
  void poke(std::shared_ptr<Driver> driver);

 private:
  void run();
  std::vector<std::shared_ptr<Driver>> wanting();
  bool drive_all(const std::vector<std::shared_ptr<Driver>>& drivers, Pass pass);
  void rest(const std::vector<std::shared_ptr<Driver>>& drivers);

  Patience patience_;
  std::mutex mutex_;                              // of drivers_ and the start of the thread
  std::vector<std::shared_ptr<Driver>> drivers_;  // shared: an operation under way outlives its communicator's handle
  std::thread thread_;
  Doorbell bell_;
  std::atomic<bool> stopping_{false};
};

}  // namespace rondo
