#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// Memory of each rank of a communicator that the others read and write, all on one host: through mappings of it where
// the window allocated it, else by the kernel. A call has done its work when it returns; no thread of the target takes
// part. Any thread.
class Window {
 public:
  MPI_Win handle{};
  std::shared_ptr<Errhandler> handler;
  std::string name;
  Attributes attributes;
  Info info;
  // What MPI_Win_get_attr points to.
  MPI_Aint size = 0;
  int unit = 1, flavor = 0, model = MPI_WIN_UNIFIED;

  // Called by all ranks. base: of MPI_WIN_FLAVOR_CREATE. adjacent: memory of a shared window is one piece, by ranks.
  static std::shared_ptr<Window> make(const Comm& comm, int flavor, void* base, MPI_Aint size, MPI_Aint unit,
                                      bool adjacent);
  ~Window();
  void close();  // by all ranks

  const Comm& comm() const { return *comm_; }
  // The memory of a rank, as this process has it.
  struct Part {
    void* base;
    MPI_Aint size, unit;
  };
  Part part(int rank) const;

  // --- Moving data; MPI_PROC_NULL as target does nothing

  // Elements of a type at a displacement of the target's.
  struct Place {
    int target;
    MPI_Aint displacement;
    MPI_Count count;
    std::shared_ptr<const Type> type;
  };
  void put(const Data& origin, const Place& to);
  void get(const Data& origin, const Place& from);
  // result: where what was there goes to; of no elements: nowhere.
  void accumulate(const Data& origin, const Data& result, const Place& at, const Op& op);
  void compare_and_swap(const void* origin, const void* compare, void* result, const Place& at);

  // --- Synchronization

  void fence();
  void lock(int type, int target, bool checked);
  void unlock(int target);
  void lock_all(bool checked);
  void unlock_all();
  void flush(int target);  // or MPI_PROC_NULL, all
  void post(const std::vector<int>& origins);
  void start(const std::vector<int>& targets);
  void complete();
  // Whether all have completed; wait: returns when they have.
  bool done(bool wait);

 private:
  // What others do to a rank: in memory that all map.
  struct Control {
    std::atomic<int> locked;        // by so many; kExclusive: by one alone
    std::atomic<uint32_t> updated;  // 1: one accumulates
  };
  struct Peer {
    std::byte* base = nullptr;    // there
    std::byte* mapped = nullptr;  // here; null: the kernel copies
    MPI_Aint size = 0, unit = 1;
    pid_t pid = 0;
  };
  class Update;
  enum class Told : uint8_t { kPosted, kCompleted };

  explicit Window(const Comm& comm);
  void meet(void* base);
  void map(bool adjacent);
  void try_peers();
  Control& control(int rank) const;
  // How often rank `from` has told rank `to` that it has posted, or completed.
  std::atomic<uint32_t>& told(Told what, int from, int to) const;
  size_t control_bytes() const;
  void await(const std::function<bool()>& over) const;
  void take(int target, bool exclusive);
  void let_go(int target);
  Peer& peer(int target);
  MPI_Aint offset_of(const Place& place);
  void move(bool write, const Place& place, std::byte* local);

  const std::shared_ptr<Comm> comm_;  // of this window alone
  std::vector<Peer> peers_;
  std::byte* segment_ = nullptr;
  size_t segment_bytes_ = 0;
  std::vector<int> held_;  // what this rank's locks add to each rank's `locked`; kUnchecked: nothing
  bool all_held_ = false;
  std::vector<uint32_t> seen_posted_, seen_completed_;
  std::vector<int> origins_, targets_;
  bool posted_ = false, started_ = false;
};

}  // namespace rondo_mpi
