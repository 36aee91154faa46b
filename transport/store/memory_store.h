#pragma once

#include <condition_variable>
#include <mutex>

#include "rondo/store.h"
#include "transport/store/store_map.h"

namespace rondo {

// The store of a world of one, and of ranks that are threads of one process. Several threads may call at once.
class MemoryStore : public Store {
 public:
  void put(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::optional<std::string> try_get(std::string_view key, Deadline deadline) override;
  int64_t add(std::string_view key, int64_t amount, Deadline deadline) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override;
  bool remove(std::string_view key, Deadline deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StoreMap map_;
};

}  // namespace rondo
