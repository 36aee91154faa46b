#include "transport/store/memory_store.h"

#include <fmt/format.h>

#include "rondo/error.h"

namespace rondo {

void MemoryStore::put(std::string_view key, std::string_view value, Deadline) {
  check_store_entry(key, value);
  std::lock_guard lock(mutex_);
  map_.put(key, value);
  changed_.notify_all();
}

std::string MemoryStore::get(std::string_view key, Deadline deadline) {
  check_store_entry(key, "");
  std::unique_lock lock(mutex_);
  while (true) {
    if (const std::string* value = map_.find(key)) return *value;
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && map_.find(key) == nullptr) {
      throw Exception(ErrorCode::kTimeout, fmt::format("nobody put \"{}\" into the store before the deadline", key));
    }
  }
}

std::optional<std::string> MemoryStore::try_get(std::string_view key, Deadline) {
  check_store_entry(key, "");
  std::lock_guard lock(mutex_);
  const std::string* value = map_.find(key);
  return value == nullptr ? std::nullopt : std::optional<std::string>(*value);
}

int64_t MemoryStore::add(std::string_view key, int64_t amount, Deadline) {
  check_store_entry(key, "");
  std::lock_guard lock(mutex_);
  int64_t sum = map_.add(key, amount);
  changed_.notify_all();
  return sum;
}

std::string MemoryStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                     Deadline) {
  check_store_entry(key, expected);
  check_store_entry(key, desired);
  std::lock_guard lock(mutex_);
  std::string value = map_.compare_set(key, expected, desired);
  changed_.notify_all();
  return value;
}

bool MemoryStore::remove(std::string_view key, Deadline) {
  check_store_entry(key, "");
  std::lock_guard lock(mutex_);
  return map_.remove(key);
}

}  // namespace rondo
