#include "transport/store/memory_store.h"

#include <fmt/format.h>

#include "rondo/error.h"

namespace rondo {

// A get waits under the condition; every request wakes all who wait, since there are few.
StoreReply MemoryStore::transact(StoreRequest request, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto waits = [&] { return request.operation == StoreOperation::kGet && map_.find(request.key) == nullptr; };
  while (waits()) {
    if (changed_.wait_until(lock, deadline) == std::cv_status::no_timeout || !waits()) continue;
    throw Exception(ErrorCode::kTimeout,
                    fmt::format("nobody put \"{}\" into the store before the deadline", request.key));
  }
  StoreReply reply = map_.apply(request);
  changed_.notify_all();
  return reply;
}

}  // namespace rondo
