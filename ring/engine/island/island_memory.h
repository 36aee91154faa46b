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

// The memory that the ranks of an island share for one communicator. The head of each rank's board lies in that
// rank's page (Fabric::page_of), which is there from the start. Parts that only larger calls need are windows,
// which every rank makes before its first such call. It hands memory out and maps it; PostBoard knows what lies
// where. Under the lease.
class IslandMemory {
 public:
  // Communicators of at most so many ranks open by posts, and have rings of posts. A rank reads its new long
  // slots and its ring once, so that the first calls find them in the caches and are timed like later ones.
  static constexpr int kFewRanks = 8;

  explicit IslandMemory(const CommunicatorContext& context);

  // True once the pages of all ranks are here. All are asked for before the first is waited for; the doorbell
  // rings when one comes.
  bool attach();
  bool attached() const { return channel_.board.attached(); }
  // What follows requires attached(). It makes what is asked for of this rank, waits for the others' likewise,
  // and throws Exception(kSystem) if there is no memory to share.
  //
  // attach_posts(): whether a rank's memory for posts of up to that many bytes is here; the bytes are equal on
  // all ranks.
  bool attach_posts(int rank, size_t bytes, PostBoard::Flow flow);
  // Staging memory of a rank, for copy-in/copy-out; nullptr: it is not here yet.
  std::byte* staging(int rank) { return memory_of(kStaging, rank); }
  // Requires attached().
  IslandChannel& channel() { return channel_; }
  // How posts and staging memory are written, and from now on slots of links: cached, or past the caches.
  void set_stores(Stores stores) {
    channel_.stores = stores;
    if (shared_ != nullptr) shared_->set_stores(stores);
  }
  const Observed& observed() const { return context_.observed; }
  // Where windows are made and found. An island always has it.
  SharedMemory& shared() const { return *shared_; }
  // The communicator has failed: takes this rank's buffers out of the others' reach. False: a rank is in an
  // access to them; ask again. True at once if no buffers were ever shared.
  bool close_buffers(Clock::time_point now);
  // Gives the memory back. The fabric keeps pages and windows while other members use them.
  void release();

 private:
  // The parts of the memory, each of which is a window of every rank: by number those of a board, then staging
  // memory.
  using BoardPart = PostBoard::Part;
  static constexpr size_t kStaging = PostBoard::kParts, kWindows = kStaging + 1;

  bool few() const { return context_.world() <= kFewRanks; }
  size_t bytes_of(size_t part) const;
  uint64_t name_of(size_t part) const;
  void offer(size_t part);
  std::byte* memory_of(size_t part, int rank);

  const CommunicatorContext& context_;
  SharedMemory* shared_;
  std::vector<std::shared_ptr<std::byte>> pages_;                       // by rank; the fabric has them, too
  std::array<std::vector<std::shared_ptr<Window>>, kWindows> windows_;  // by part and rank; shared with the fabric
  IslandChannel channel_;
  GracePeriod end_;
};

}  // namespace rondo
