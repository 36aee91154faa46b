#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/host_lane.h"
#include "tests/support/fake_cuda/fake.h"

namespace rondo::testing {

// A lane of a kernel with its virtual time. A word of device memory keeps when it is there; a look at it that ends a
// wait goes on then. A release waits for what the lane has written before its last barrier: between barriers its
// threads do their parts beside each other.
template <class Runs>
class TimedLane : public HostLane<Runs> {
  using Host = HostLane<Runs>;

 public:
  TimedLane(Runs& runs, uint32_t lane, uint32_t lanes, uint64_t element_bytes, int device, uint64_t begin)
      : Host(runs, lane, lanes, element_bytes), device_(device), now_(begin), there_(begin), before_(begin) {}

  bool any(bool it) { return before_ = there_, it; }

  uint32_t load_acquire(const uint32_t* word) {
    const uint32_t value = Host::load_acquire(word);
    if (word != looked_at_) here_ = fake().memory.times_of(looked_at_ = word);
    if (here_.time == nullptr) return now_ += virtual_time::kRead, value;  // the host's
    now_ = std::max(now_, here_.time->load(std::memory_order_relaxed));
    return value;
  }
  uint64_t load_word(const uint64_t* word) {
    const uint64_t value = Host::load_word(word);
    now_ = std::max(now_, times_of(word).time->load(std::memory_order_relaxed));
    return value;
  }
  // Words of a lane share the link.
  void store_word(uint64_t* word, uint64_t value) {
    stored_ += sizeof *word * this->lanes();
    show(times_of(word), stored_ / virtual_time::kLinkBytes);
    Host::store_word(word, value);
  }
  void store_release(uint32_t* word, uint32_t value) {
    now_ = std::max(now_, before_);
    show(fake().memory.times_of(word));
    Host::store_release(word, value);
  }
  void store_started(uint32_t* word, uint32_t value) {
    show(fake().memory.times_of(word));
    now_ = std::max(now_, there_);
    Host::store_started(word, value);
  }
  uint32_t add_left(uint32_t* word) {
    now_ = std::max(now_, there_);
    const FakeMemory::Times at = fake().memory.times_of(word);
    uint64_t last = at.time->load(std::memory_order_relaxed);
    if (last < now_) at.time->store(now_, std::memory_order_relaxed);  // lanes come one after the other
    const uint32_t before = Host::add_left(word);
    now_ = std::max(now_, last);
    return before;
  }
  void run(const Pass& pass) {
    const DeviceFold& fold = pass.fold;
    const uint64_t bytes = fold.count * dtype_bytes(DType(fold.dtype));
    const auto away = [&](const void* memory) { return fake().memory.home_of(memory) != device_; };
    const auto from = static_cast<uint64_t>(std::count_if(fold.sources, fold.sources + fold.source_count, away));
    const auto to = static_cast<uint64_t>(std::count_if(fold.targets, fold.targets + fold.target_count, away));
    if (from > 0) now_ += (from * bytes + virtual_time::kInFlight - 1) / virtual_time::kInFlight * virtual_time::kRead;
    now_ += std::max(from, to) * bytes * this->lanes() / virtual_time::kLinkBytes;
    now_ += (uint64_t{fold.source_count} + fold.target_count) * bytes * this->lanes() / virtual_time::kOwnBytes;
    if (to > 0) there_ = std::max(there_, now_ + virtual_time::kWord);
    Host::run(pass);
  }
  // When all that it has written is there.
  uint64_t end() const { return std::max(now_, there_); }

 private:
  static FakeMemory::Times times_of(const uint64_t* word) {
    return fake().memory.times_of(reinterpret_cast<const uint32_t*>(word));
  }
  void show(const FakeMemory::Times& at, uint64_t behind = 0) {
    const uint64_t when = now_ + behind + (at.home == device_ ? 0 : virtual_time::kWord);
    if (at.time != nullptr) at.time->store(when, std::memory_order_relaxed);
    there_ = std::max(there_, when);
  }

  const int device_;
  uint64_t stored_ = 0;            // bytes of words, were all lanes as far
  uint64_t now_, there_, before_;  // when what it has written is there: all of it, and that of before the barrier
  const uint32_t* looked_at_ = nullptr;
  FakeMemory::Times here_ = {};
};

}  // namespace rondo::testing
