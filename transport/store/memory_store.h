#pragma once

#include <condition_variable>
#include <mutex>

#include "transport/store/request_store.h"
#include "transport/store/store_map.h"

namespace rondo {

// The store of a world of one, and of ranks that are threads of one process. Several threads may call at once.
class MemoryStore : public RequestStore {
 private:
  StoreReply transact(StoreRequest request, Deadline deadline) override;

  // Guards map_.
  std::mutex mutex_;
  std::condition_variable changed_;
  StoreMap map_;
};

}  // namespace rondo
