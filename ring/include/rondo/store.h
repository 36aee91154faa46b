#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Where ranks find one another: a small shared map of byte strings. Keys and values are bounded (kMaxKeyBytes,
// kMaxValueBytes; longer ones throw kInvalid). Every call may block until `deadline` and then throws
// Exception(kTimeout); a store that is gone or unreachable throws Exception(kBootstrap). Any thread, one call at a time
// per object.
class Store {
 public:
  static constexpr size_t kMaxKeyBytes = 512;
  static constexpr size_t kMaxValueBytes = 1 << 20;
  using Deadline = std::chrono::steady_clock::time_point;

  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  virtual void put(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Waits until the key exists.
  virtual std::string get(std::string_view key, Deadline deadline) = 0;
  // Does not wait for the key.
  virtual std::optional<std::string> try_get(std::string_view key, Deadline deadline) = 0;
  // Adds to the decimal number under the key (0 if absent) and returns the sum.
  virtual int64_t add(std::string_view key, int64_t amount, Deadline deadline) = 0;
  // Stores `desired` if the current value is `expected` (an absent key counts as ""); returns the value afterwards.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                  Deadline deadline) = 0;
  // True if the key was there.
  virtual bool remove(std::string_view key, Deadline deadline) = 0;
};

}  // namespace rondo
