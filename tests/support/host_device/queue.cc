#include "tests/support/host_device/queue.h"

#include <utility>

namespace rondo::testing {
namespace {

thread_local bool runs_entry = false;

}  // namespace

HostDeviceQueue::HostDeviceQueue() : thread_([this] { run(); }) {}

HostDeviceQueue::~HostDeviceQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool HostDeviceQueue::in_entry() { return runs_entry; }

void HostDeviceQueue::add(const void* stream, std::function<void()> entry) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return entries_.size() < kMostEntries; });
  ++streams_[stream].added;
  ++all_.added;
  entries_.push_back({stream, std::move(entry)});
  changed_.notify_all();
}

void HostDeviceQueue::synchronize(const void* stream) {
  std::unique_lock lock(mutex_);
  const uint64_t until = streams_[stream].added;
  changed_.wait(lock, [&] { return streams_[stream].done >= until; });
}

void HostDeviceQueue::synchronize_all() {
  std::unique_lock lock(mutex_);
  const uint64_t until = all_.added;
  changed_.wait(lock, [&] { return all_.done >= until; });
}

void HostDeviceQueue::run() {
  runs_entry = true;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !entries_.empty(); });
    if (entries_.empty()) return;
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    lock.unlock();
    entry.function();
    lock.lock();
    ++streams_[entry.stream].done;
    ++all_.done;
    changed_.notify_all();
  }
}

}  // namespace rondo::testing
