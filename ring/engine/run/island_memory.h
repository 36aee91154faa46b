#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ring/engine/communicator_context.h"
#include "ring/engine/run/grace_period.h"
#include "ring/engine/run/island_channel.h"
#include "transport/shared_memory.h"

namespace rondo {

// The memory that the ranks of an island share for one communicator: of each rank its board and its staging memory, in
// one window, which is named after the communicator. Under the lease.
class IslandMemory {
 public:
  explicit IslandMemory(const CommunicatorContext& context);

  // Offers this rank's window to the others at the first call. True once all others' are mapped here; the doorbell
  // rings when one comes. Throws Exception(kSystem) if there is no memory to share.
  bool attach();
  bool attached() const { return channel_.board.attached(); }
  // Requires attached().
  IslandChannel& channel() { return channel_; }
  std::byte* staging(int rank) const {
    return windows_[static_cast<size_t>(rank)]->data() + PostBoard::bytes(ring_bytes());
  }
  // How posts, staging memory and, from now on, slots of links are written.
  void set_stores(Stores stores) {
    channel_.stores = stores;
    if (shared_ != nullptr) shared_->set_stores(stores);
  }
  const Observed& observed() const { return context_.observed; }
  // Where windows are made and found; not null in an island.
  SharedMemory& shared() const { return *shared_; }
  // The communicator has failed: takes this rank's buffers out of the others' reach. False: one of them is at work on
  // them; ask again.
  bool close_buffers(Clock::time_point now);
  // Gives the memory back.
  void release();

 private:
  // Of posts, a rank; in large islands less (docs/shared-memory.md).
  size_t ring_bytes() const {
    return context_.world() <= kRanksOfLargeRings ? PostBoard::kRingBytes : PostBoard::kFewestRingBytes;
  }
  size_t window_bytes() const { return PostBoard::bytes(ring_bytes()) + context_.config.staging_bytes; }
  void offer();
  bool map(int rank);
  static constexpr int kRanksOfLargeRings = 8;

  const CommunicatorContext& context_;
  SharedMemory* shared_;
  std::vector<std::shared_ptr<Window>> windows_;  // by rank; shared with the fabric's book of windows
  IslandChannel channel_;
  GracePeriod end_;
};

}  // namespace rondo
