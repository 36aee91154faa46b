#pragma once

#include <atomic>
#include <functional>

#include "mpi/core/reach.h"

namespace rondo_mpi {

// For ranks of one host that share memory: mappings of it where the window allocated it, else copies by the kernel. No
// thread of the target takes part. A wait for another rank polls memory, on the thread that waits: no message says that
// a lock is free. All ranks that map the segment are trusted with it, as ranks of one job.
class MemoryReach final : public Reach {
 public:
  // Called by all ranks. peers: of all, and the window's. adjacent: memory of a shared window is one piece, by ranks.
  MemoryReach(Comm& comm, int flavor, const std::vector<Peer>& peers, bool adjacent);
  MemoryReach(const MemoryReach&) = delete;
  ~MemoryReach() override;

  std::byte* memory(int rank) const override { return mapped_[static_cast<size_t>(rank)]; }
  void put(const Place& to, const std::byte* from) override;
  void get(const Place& from, std::byte* to) override;
  void update(const Place& at, const Op& op, const std::shared_ptr<const Type>& basic, const std::byte* in,
              std::byte* before) override;
  void swap(const Place& at, const std::byte* in, const std::byte* compare, std::byte* before) override;
  void lock(int rank, Lock how) override;
  void unlock(int rank, Lock how) override;
  void tell(Word what, const std::vector<int>& ranks) override;
  bool hear(Word what, const std::vector<int>& ranks, bool wait) override;

 private:
  MemoryReach(Comm& comm, const std::vector<Peer>& peers);

  // What others do to a rank: in memory that all map. Pages of a new segment are zero, which is a free lock; no
  // constructor runs. The two counters of each rank (told()) follow it.
  struct Control {
    std::atomic<int> locked;        // by so many; kExclusive: by one alone
    std::atomic<uint32_t> updated;  // 1: one accumulates
    std::atomic<uint32_t> wanted;   // by so many that wait for it alone
  };
  class Update;
  class Wish;

  // Both are for the constructor, and are called by all ranks.
  void map(int flavor, bool adjacent);
  void try_peers();
  size_t control_bytes() const;
  Control& control(int rank) const;
  // How often rank `from` has told rank `to` that.
  std::atomic<uint32_t>& told(Word what, int from, int to) const;
  // Returns when over() is true; throws when the communicator has failed.
  void await(const std::function<bool()>& over) const;
  void move(bool write, const Place& place, std::byte* local);

  Comm& comm_;                      // the window's
  const std::vector<Peer>& peers_;  // the window's
  std::vector<std::byte*> mapped_;  // of each rank; null: the kernel copies
  std::vector<uint32_t> heard_[2];  // of each Word and rank
  std::byte* segment_ = nullptr;    // mapped by map(), the same file on all ranks
  size_t segment_bytes_ = 0;        // control blocks, then what the window allocates
};

}  // namespace rondo_mpi
