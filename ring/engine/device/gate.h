#pragma once

#include <atomic>
#include <cstdint>

namespace rondo {

// Between a stream and the operations on what it has copied to the host: they begin when the stream has come to them,
// and it goes on when they have ended. Any thread.
class Gate {
 public:
  // word: locked host memory that the stream waits for; it is set to `value` once `operations` have ended.
  Gate(uint32_t* word, uint32_t value, int operations) : word_(word), value_(value), left_(operations) {}

  // The stream has come here.
  void open() { open_.store(true, std::memory_order_release); }
  bool is_open() const { return open_.load(std::memory_order_acquire); }

  // An operation has ended.
  void ended() {
    if (left_.fetch_sub(1) != 1) return;
    // Release: who sees the word sees what the operations wrote.
    std::atomic_ref<uint32_t>(*word_).store(value_, std::memory_order_release);
  }
  const uint32_t* word() const { return word_; }
  uint32_t value() const { return value_; }

 private:
  uint32_t* const word_;
  const uint32_t value_;
  std::atomic<bool> open_{false};
  std::atomic<int> left_;
};

}  // namespace rondo
