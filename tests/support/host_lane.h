#pragma once

#include <atomic>
#include <chrono>

#include "kernels/device/call_lane.h"
#include "rondo/dtype.h"
#include "tests/support/host_fold.h"

namespace rondo {

// A lane on a thread of this processor (call_lane.h). Runs: what runs a fold, what a wait does between two looks, and
// where memory is found.
template <class Runs>
class HostLane {
 public:
  static constexpr uint32_t kBetweenClocks = kLooksBetweenClocks;
  static constexpr uint64_t kBetweenStopsNs = kNsBetweenStops;

  HostLane(Runs& runs, uint32_t lane, uint32_t lanes, uint64_t element_bytes)
      : runs_(runs), lane_(lane), lanes_(lanes), element_bytes_(element_bytes) {}
  ThreadPlace thread() const { return {0, 1}; }
  uint32_t& step() { return step_; }
  uint32_t lane() const { return lane_; }
  uint32_t lanes() const { return lanes_; }
  uint64_t element_bytes() const { return element_bytes_; }
  // A lane of one thread: its barrier is nothing.
  bool any(bool it) const { return it; }
  uint32_t load_acquire(const uint32_t* word) const { return at(word).load(std::memory_order_acquire); }
  uint64_t load_word(const uint64_t* word) const { return at(word).load(std::memory_order_relaxed); }
  void store_word(uint64_t* word, uint64_t value) const { at(word).store(value, std::memory_order_relaxed); }
  uint32_t load_data(const Byte* from, uint64_t left) const { return data_at(from, left); }
  void store_data(Byte* to, uint32_t data, uint64_t left) const { put_data(to, data, left); }
  template <class T>
  T* reach(T* memory, uint64_t bytes) const {
    return reinterpret_cast<T*>(runs_.reach(memory, bytes));
  }
  uint32_t load_relaxed(const uint32_t* word) const { return at(word).load(std::memory_order_relaxed); }
  void store_relaxed(uint32_t* word, uint32_t value) const { at(word).store(value, std::memory_order_relaxed); }
  void store_release(uint32_t* word, uint32_t value) const { at(word).store(value, std::memory_order_release); }
  void store_started(uint32_t* word, uint32_t value) const { at(word).store(value); }
  bool claim(uint32_t* word) const {
    uint32_t none = 0;
    return at(word).compare_exchange_strong(none, 1);
  }
  uint32_t add_left(uint32_t* word) const { return at(word).fetch_add(1, std::memory_order_acq_rel); }
  uint64_t now() const {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  void pause() const { runs_.pause(); }
  void run(const Pass& pass) const { runs_.run(pass.fold); }

 private:
  template <class Word>
  static std::atomic_ref<Word> at(const Word* word) {
    return std::atomic_ref<Word>(*const_cast<Word*>(word));
  }
  Runs& runs_;
  const uint32_t lane_, lanes_;
  const uint64_t element_bytes_;
  uint32_t step_ = 0;
};

// One lane of the call.
template <class Runs>
void run_host_lane(const DeviceCall& call, Runs& runs, uint32_t lane, uint32_t lanes) {
  using Machine = HostLane<Runs>;
  Machine machine(runs, lane, lanes, dtype_bytes(static_cast<DType>(call.dtype)));
  LaneState state = {};
  CallLane<Machine>(machine, call, state).run();
}

}  // namespace rondo
