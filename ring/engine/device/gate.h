#pragma once

#include <atomic>
#include <cstdint>

#include "rondo/error.h"

namespace rondo {

// Stands between a stream and an operation of a call on device memory: the operation may begin when the stream
// has reached it, and the stream goes on when the operation has ended. The stream's call and the operation
// share it. Any thread.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  virtual ~Gate() = default;

  // Whether the stream has reached it.
  virtual bool is_open() const = 0;
  // An operation behind it has ended; nullptr: without an error. It calls no function of the device's runtime.
  virtual void ended(const Error* error) = 0;
};

// Words that streams and threads of the host look at, sequentially consistent. A thread that sees a number sees
// what its writer did before. A thread that has set a stop sees everything that began without seeing the stop.
inline uint32_t load_word(const uint32_t& word) {
  return std::atomic_ref<uint32_t>(const_cast<uint32_t&>(word)).load();
}
inline void store_word(uint32_t& word, uint32_t value) { std::atomic_ref<uint32_t>(word).store(value); }
// Whether a counting word has reached a number. Numbers wrap around, so they are compared by their difference.
constexpr bool at_least(uint32_t word, uint32_t number) { return static_cast<int32_t>(word - number) >= 0; }

}  // namespace rondo
