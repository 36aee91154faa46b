#include "ring/engine/pool.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>

#include "ring/base/own_thread.h"

namespace rondo {
namespace {

// As in driver.cc: the longest sleep, so that deadlines and stalls are noticed.
constexpr int kLongestSleepMs = 20;

}  // namespace

Pool::~Pool() {
  stopping_.store(true);
  bell_.ring();
  if (thread_.joinable()) thread_.join();
}

void Pool::start() {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = start_own_thread("rondo-pool", [this] { run(); });
}

void Pool::poke(std::shared_ptr<Driver> driver) {
  {
    std::lock_guard lock(mutex_);
    if (!thread_.joinable()) return;  // nothing has been left to it yet: what is pending, others wait for
    if (std::find(drivers_.begin(), drivers_.end(), driver) == drivers_.end()) drivers_.push_back(std::move(driver));
  }
  bell_.ring();
}

// Drivers that want the pool; the others are dropped, and come back by poke().
std::vector<std::shared_ptr<Driver>> Pool::wanting() {
  std::lock_guard lock(mutex_);
  std::erase_if(drivers_, [](const auto& driver) { return !driver->wants_pool(); });
  return drivers_;
}

bool Pool::drive_all(const std::vector<std::shared_ptr<Driver>>& drivers, Pass pass) {
  bool moved = false;
  for (const auto& driver : drivers) moved |= driver->try_drive(pass);
  return moved;
}

void Pool::run() {
  Clock::time_point last_moved = Clock::now();
  while (!stopping_.load()) {
    const auto drivers = wanting();
    if (drive_all(drivers, Pass::kPolling)) {
      last_moved = Clock::now();
    } else if (!drivers.empty() && Clock::now() - last_moved < patience_.spin) {
      if (patience_.yields) sched_yield();
    } else {
      rest(drivers);
    }
  }
}

void Pool::rest(const std::vector<std::shared_ptr<Driver>>& drivers) {
  bell_.arm();
  for (const auto& driver : drivers) driver->bell().arm();
  std::vector<pollfd> sleeping_on{{bell_.descriptor(), POLLIN, 0}};
  for (const auto& driver : drivers) sleeping_on.push_back({driver->bell().descriptor(), POLLIN, 0});
  const bool changed = stopping_.load() || wanting() != drivers || drive_all(drivers, Pass::kBeforeSleep);
  if (!changed) poll(sleeping_on.data(), sleeping_on.size(), drivers.empty() ? 60'000 : kLongestSleepMs);
  bell_.drain();
  for (const auto& driver : drivers) driver->drain_bell();
}

}  // namespace rondo
