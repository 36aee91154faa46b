#pragma once

#include <atomic>
#include <cstdint>

#include "rondo/error.h"

namespace rondo {

// Between a stream and an operation of a call on device memory: it begins when the stream has come to it. Any thread.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  virtual ~Gate() = default;

  // The stream has come here.
  virtual bool is_open() const = 0;
  // An operation behind it has ended; nullptr: well.
  virtual void ended(const Error* error) = 0;
};

// The gate of operations on what a stream has copied to the host: the stream goes on when they have ended.
class CopyGate final : public Gate {
 public:
  // word: locked host memory that the stream waits for; it is set to `value` once `operations` have ended.
  CopyGate(uint32_t* word, uint32_t value, int operations) : word_(word), value_(value), left_(operations) {}

  void open() { open_.store(true, std::memory_order_release); }
  bool is_open() const override { return open_.load(std::memory_order_acquire); }
  void ended(const Error*) override {
    if (left_.fetch_sub(1) != 1) return;
    // Release: who sees the word sees what the operations wrote.
    std::atomic_ref<uint32_t>(*word_).store(value_, std::memory_order_release);
  }
  uint32_t* word() const { return word_; }
  uint32_t value() const { return value_; }

 private:
  uint32_t* const word_;
  const uint32_t value_;
  std::atomic<bool> open_{false};
  std::atomic<int> left_;
};

}  // namespace rondo
