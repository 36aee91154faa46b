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

// Words that streams and threads of the host look at, sequentially consistent: who sees a number sees what its writer
// did before, and who has set a stop sees what has begun without seeing it.
inline uint32_t load_word(const uint32_t& word) {
  return std::atomic_ref<uint32_t>(const_cast<uint32_t&>(word)).load();
}
inline void store_word(uint32_t& word, uint32_t value) { std::atomic_ref<uint32_t>(word).store(value); }
// The numbers wrap around.
constexpr bool at_least(uint32_t word, uint32_t number) { return static_cast<int32_t>(word - number) >= 0; }

}  // namespace rondo
