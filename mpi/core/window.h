#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "mpi/core/objects.h"
#include "mpi/core/reach.h"

namespace rondo_mpi {

// Memory of each rank of a communicator that the others read and write: its epochs and what they allow. How ranks get
// at each other's memory is its Reach. A call has done its work when it returns. Any thread. The handle, and a call
// that is under way, share it. Nothing moves by itself: put() and its kin return when the data is there, so flush() and
// the end of an epoch have nothing left to wait for but other ranks. Fields without an atomic type are changed by calls
// that MPI forbids two threads to make at once.
class Window {
 public:
  MPI_Win handle{};
  Handler handler;
  Locked<std::string> name;
  Attributes attributes;
  Info info;
  // What MPI_Win_get_attr points to. These keep their addresses, and their values, as long as the window.
  MPI_Aint size = 0;
  int unit = 1, flavor = 0, model = MPI_WIN_UNIFIED;

  // Called by all ranks, which have agreed that each size is not negative and each unit positive, as far as an int
  // holds. base: of MPI_WIN_FLAVOR_CREATE. adjacent: memory of a shared window is one piece, by ranks. Throws on all
  // ranks if it throws on one.
  static std::shared_ptr<Window> make(const Comm& comm, int flavor, void* base, MPI_Aint size, MPI_Aint unit,
                                      bool adjacent);
  void require_idle() const;  // MPI_ERR_RMA_SYNC while an epoch other than a fence's is open
  void close();               // by all ranks, when it is idle

  const Comm& comm() const { return *comm_; }
  // The memory of a rank, as this process has it.
  struct Part {
    void* base;
    MPI_Aint size, unit;
  };
  Part part(int rank) const;
  // This rank's memory becomes a part of a dynamic window, and ceases to be.
  void attach(void* base, MPI_Aint bytes) { reach_->attach(base, bytes); }
  void detach(const void* base) { reach_->detach(base); }

  // --- Moving data, in an access epoch at the target, else MPI_ERR_RMA_SYNC; MPI_PROC_NULL as target does nothing

  // Elements of a type at a displacement of the target's.
  struct Place {
    int target;
    MPI_Aint displacement;
    MPI_Count count;
    std::shared_ptr<const Type> type;

    MPI_Count bytes() const { return product(count, type->size); }
  };
  // MPI_ERR_RMA_RANGE where the place is not in the target's memory, MPI_ERR_TYPE where lengths differ.
  void put(const Data& origin, const Place& to);
  void get(const Data& origin, const Place& from);
  // result: where what was there goes to; of no elements: nowhere.
  void accumulate(const Data& origin, const Data& result, const Place& at, const Op& op);
  void compare_and_swap(const void* origin, const void* compare, void* result, const Place& at);

  // --- Synchronization

  // MPI_ERR_RMA_SYNC where MPI does not allow the call in this epoch; then nothing changes.
  void fence(bool succeeds);  // whether an epoch begins
  void lock(int type, int target, bool checked);
  void unlock(int target);
  void lock_all(bool checked);
  void unlock_all();
  void flush(int target);  // a locked one, or MPI_PROC_NULL
  void flush_all();
  void sync();
  void post(const std::vector<int>& origins);
  void start(const std::vector<int>& targets);
  void complete();
  // Whether all have completed; wait: returns when they have. Without waiting it may return false, and the exposure
  // epoch goes on.
  bool done(bool wait);

 private:
  // What this rank has of each rank's memory. kUnchecked: no lock was taken, since the program says that none is in its
  // way (MPI_MODE_NOCHECK).
  enum class Held : uint8_t { kNot, kShared, kExclusive, kUnchecked };

  explicit Window(const Comm& comm);
  // All ranks exchange what peers_ has.
  void meet(void* base, MPI_Aint own_unit);
  std::unique_ptr<Reach> made_reach(void* base, bool adjacent);
  const Reach::Peer& peer(int target) const;
  Reach::Place checked(const Place& place) const;
  bool may_access(int target) const;
  bool holds_none() const;
  void let_go(int target);

  // The order of these three matters: reach_ refers to the two before it.
  const std::shared_ptr<Comm> comm_;  // of this window alone; its Reach has a share
  std::vector<Reach::Peer> peers_;
  std::unique_ptr<Reach> reach_;
  std::vector<std::atomic<Held>> held_;  // other threads may lock other targets
  std::atomic<bool> all_held_{false};
  std::vector<int> origins_, targets_;  // of the epochs that post() and start() have opened; targets_ is sorted
  bool posted_ = false, started_ = false;
  std::atomic<bool> fenced_{false};  // fence() was the last to begin an epoch; several threads may end that by lock()
};

}  // namespace rondo_mpi
