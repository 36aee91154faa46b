#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ring/engine/communicator_context.h"
#include "ring/engine/island/grace_period.h"
#include "ring/engine/island/island_channel.h"
#include "transport/shared_memory.h"

namespace rondo {

// The memory that the ranks of an island share for one communicator: of each rank the head of its board, in its page
// (Fabric::page_of), and what only larger calls need, in windows that each rank makes before the first of them. Under
// the lease.
class IslandMemory {
 public:
  // Communicators of so few ranks open by posts and have rings of posts. A rank reads its new long slots and ring
  // once, so that the first calls find them in the caches.
  static constexpr int kFewRanks = 8;

  explicit IslandMemory(const CommunicatorContext& context);

  // True once all ranks' pages are here; the doorbell rings when one comes.
  bool attach();
  bool attached() const { return channel_.board.attached(); }
  // The rest requires attached(), makes what is asked for of this rank, and waits for the others' likewise. Throws
  // Exception(kSystem) if there is no memory to share.
  // A rank's memory for posts of up to that many bytes, equal on all ranks.
  bool attach_posts(int rank, size_t bytes, PostBoard::Flow flow);
  // nullptr: on its way.
  std::byte* staging(int rank) { return memory_of(kStaging, rank); }
  // Requires attached().
  IslandChannel& channel() { return channel_; }
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
  // What is a window each: by number the parts of a board, and behind them staging memory.
  using BoardPart = PostBoard::Part;
  static constexpr size_t kStaging = PostBoard::kParts, kWindows = kStaging + 1;

  bool few() const { return context_.world() <= kFewRanks; }
  size_t bytes_of(size_t part) const;
  uint64_t name_of(size_t part) const;
  void offer(size_t part);
  std::byte* memory_of(size_t part, int rank);

  const CommunicatorContext& context_;
  SharedMemory* shared_;
  std::vector<std::shared_ptr<std::byte>> pages_;                       // by rank; shared with the fabric
  std::array<std::vector<std::shared_ptr<Window>>, kWindows> windows_;  // by part and rank; shared with the fabric
  IslandChannel channel_;
  GracePeriod end_;
};

}  // namespace rondo
