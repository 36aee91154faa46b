#include "ring/engine/device/stream_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <utility>

#include "ring/engine/device/gate.h"

namespace rondo {
namespace {

// The most entries of this communicator in streams. Some 1,000 pending launches block the thread that launches,
// and several communicators share a stream.
constexpr uint32_t kMostEntries = 512;
constexpr std::chrono::milliseconds kBetweenLooks{20};
// The time between two looks at the words of kernels, which ring nobody: some ten kernels of short calls.
constexpr std::chrono::microseconds kBetweenLooksAtKernels{100};

}  // namespace

DeviceEvent StreamCalls::take_event(int device) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = events_.find(device); found != events_.end()) return events_.extract(found).mapped();
  }
  DeviceEvent event = nullptr;
  driver->check(driver->make_event(device, &event), "making an event");
  return event;
}

void StreamCalls::give_back(int device, DeviceEvent event) {
  {
    std::lock_guard lock(mutex_);
    if (!freed_) {
      events_.emplace(device, event);
      return;
    }
  }
  driver->destroy_event(device, event);
}

StreamCalls::InStream::InStream(std::shared_ptr<StreamCalls> calls) : calls_(std::move(calls)) {
  std::lock_guard lock(calls_->mutex_);
  ++calls_->in_streams_;
}

StreamCalls::InStream::~InStream() {
  std::lock_guard lock(calls_->mutex_);
  --calls_->in_streams_;
  calls_->changed_.notify_all();
}

void StreamCalls::prepare(int device) {
  {
    std::lock_guard lock(mutex_);
    if (prepared_.count(device) != 0) return;
  }
  driver->load_kernels(device);
  if (!can_wait(device, copy_stream(device))) streams_wait_.store(false, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  prepared_.insert(device);
}

// Whether a stream can wait for a word of host memory. It is tried: what the device's attributes say differs
// between versions of the driver.
bool StreamCalls::can_wait(int device, DeviceStream stream) const {
  constexpr size_t kPage = 4096;
  const std::unique_ptr<void, decltype(&std::free)> page(std::aligned_alloc(kPage, kPage), &std::free);
  if (!page) throw std::bad_alloc();
  auto* const word = static_cast<uint32_t*>(page.get());
  *word = 1;
  driver->check(driver->lock_host(device, word, kPage), "locking host memory");
  const DeviceStatus status = driver->await(word, 1, stream);
  driver->synchronize(stream);
  driver->unlock_host(word);
  if (status == cuda::kNotSupported) return false;
  driver->check(status, "a stream's wait for host memory");
  return true;
}

// Made without the lock: making a stream may wait for streams whose functions take the lock. Of two threads one
// drops its own.
DeviceStream StreamCalls::copy_stream(int device) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = copy_streams_.find(device); found != copy_streams_.end()) return found->second;
  }
  DeviceStream made = nullptr;
  driver->check(driver->make_stream(device, &made), "making a stream");
  std::unique_lock lock(mutex_);
  const auto [found, is_new] = copy_streams_.emplace(device, made);
  const DeviceStream stream = found->second;
  lock.unlock();
  if (!is_new) driver->destroy_stream(made);
  return stream;
}

bool StreamCalls::begin(uint32_t entries, const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  // One that is larger than all room waits for the others only.
  const auto has_room = [&] { return !has_entries() || entries_ + entries <= kMostEntries; };
  while (!changed_.wait_for(lock, next_look(), has_room)) {
    lock.unlock();  // it may be the program's
    if (stop()) return false;
    lock.lock();
  }
  entries_ += entries;
  return true;
}

// Requires the lock.
bool StreamCalls::has_entries() {
  while (!launched_.empty() && at_least(load_word(*launched_.front().passed), launched_.front().number)) {
    entries_ -= launched_.front().entries;
    launched_.pop_front();
  }
  return entries_ > 0;
}

// Requires the lock.
Clock::duration StreamCalls::next_look() const {
  return launched_.empty() ? Clock::duration(kBetweenLooks) : kBetweenLooksAtKernels;
}

void StreamCalls::end(uint32_t entries) {
  std::lock_guard lock(mutex_);
  entries_ -= entries;
  changed_.notify_all();
}

void StreamCalls::end_once_passed(const uint32_t* passed, uint32_t number, uint32_t entries) {
  std::lock_guard lock(mutex_);
  launched_.push_back({passed, number, entries});
}

void StreamCalls::end_kernels() {
  std::lock_guard lock(mutex_);
  for (const Launched& kernels : std::exchange(launched_, {})) entries_ -= kernels.entries;
  changed_.notify_all();
}

bool StreamCalls::wait_for_all(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  while (has_entries() && Clock::now() < until) {
    changed_.wait_until(lock, std::min(until, Clock::now() + next_look()));
  }
  return entries_ == 0;
}

void StreamCalls::begin_send() {
  std::lock_guard lock(mutex_);
  ++sends_;
}

void StreamCalls::end_send() {
  std::lock_guard lock(mutex_);
  --sends_;
  changed_.notify_all();
}

void StreamCalls::wait_for_sends(Clock::time_point until, const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  while (sends_ > 0 && Clock::now() < until && !stop()) {
    changed_.wait_until(lock, std::min(until, Clock::now() + kBetweenLooks));
  }
}

// Asks a stream of each device, which is a call of the driver, so once a second is enough.
std::optional<Error> StreamCalls::broken(Look look) {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (broken_ || look == Look::kSeen || (look == Look::kAtTimes && now < next_look_)) return broken_;
  next_look_ = now + kBetweenLooksAtDevice;
  for (const auto& [device, stream] : copy_streams_) {
    if (const DeviceStatus status = driver->broken(stream)) {
      broken_ = Error{ErrorCode::kSystem,
                      fmt::format("device {} has failed: {} (error {})", device, driver->error_text(status), status),
                      {}};
    }
  }
  return broken_;
}

void StreamCalls::free_all() {
  if (!pool.free_all()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_streams_ == 0; });  // those that have ended calls
  const auto streams = std::exchange(copy_streams_, {});
  // Without the lock: this waits for functions in streams, which give back events.
  lock.unlock();
  for (const auto& [device, stream] : streams) driver->destroy_stream(stream);
  lock.lock();
  freed_ = true;
  const auto events = std::exchange(events_, {});
  lock.unlock();
  for (const auto& [device, event] : events) driver->destroy_event(device, event);
}

// --- CopyStream

CopyStream::CopyStream(StreamCalls& calls, DeviceStream caller, DeviceStream copies, int device)
    : calls_(calls),
      driver_(*calls.driver),
      caller_(caller),
      copies_(copies),
      device_(device),
      event_(calls.take_event(device)) {}

void CopyStream::begin() {
  note();
  await();
}

void CopyStream::note() { driver_.check(driver_.record(event_, caller_), "putting an event into the stream"); }

void CopyStream::await() { driver_.check(driver_.wait(copies_, event_), "putting a wait into the stream"); }

// Errors are ignored: a device that has failed runs nothing more in its streams.
void CopyStream::join() {
  if (event_ == nullptr) return;
  if (driver_.record(event_, copies_) == 0) driver_.wait(caller_, event_);
  calls_.give_back(device_, std::exchange(event_, nullptr));
}

}  // namespace rondo
