#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "transport/store/store_wire.h"

namespace rondo {

// Throws Exception(kInvalid) if a key or value is longer than Store allows, or the key is empty.
void check_store_entry(std::string_view key, std::string_view value);

// The content of a store, with a bound on its size; no I/O, one thread. A call that cannot be done leaves it unchanged
// and throws Exception(kBootstrap).
class StoreMap {
 public:
  // 4,096 ranks with cards of 1 KiB and the table made of them take 8 MiB; 256 MiB is what a runaway program may use.
  static constexpr size_t kMaxBytes = 256u << 20;
  // Bounds the content from now on; entries that exceed it already stay.
  void limit(size_t bytes) { limit_ = bytes; }

  const std::string* find(std::string_view key) const;
  void put(std::string_view key, std::string_view value);
  // Stores and returns the number under the key (0 if absent) plus `amount`. It must be a decimal number, and the sum
  // must fit 64 bits.
  int64_t add(std::string_view key, int64_t amount);
  // The value afterwards.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  bool remove(std::string_view key);
  // kGet of a key that is not there is answered as kTryGet. kWill is a connection's: it changes nothing here.
  StoreReply apply(const StoreRequest& request);

 private:
  std::map<std::string, std::string, std::less<>> entries_;
  // All entries, each with what it costs besides its bytes (kEntryBytes).
  size_t bytes_ = 0;
  size_t limit_ = kMaxBytes;
};

}  // namespace rondo
