#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// How a rank of a window gets at the memory of the others, and tells them how far it is: through memory that they share
// (MemoryReach), or by messages (MessageReach). All ranks of a window have the same. A call has done its work when it
// returns; one that waits for another rank throws the failure of the communicator. Any thread. The window owns it, and
// has checked epoch and bounds.
class Reach {
 public:
  // A rank's memory, as that rank has it.
  struct Peer {
    std::byte* base = nullptr;  // of MPI_WIN_FLAVOR_CREATE
    MPI_Aint size = 0, unit = 1;
    pid_t pid = 0;
  };
  // Elements in a rank's memory, of one byte at least. They lie in the window, unless it is a dynamic one.
  struct Place {
    int rank;
    MPI_Aint begin;  // bytes from the base; of a dynamic window: the address there
    MPI_Count count;
    const Type& type;

    MPI_Count bytes() const { return count * type.size; }
  };
  enum class Lock : uint8_t { kShared, kExclusive };
  // kPosted: an origin may begin its accesses. kCompleted: the accesses of an origin have ended.
  enum class Word : uint8_t { kPosted, kCompleted };

  virtual ~Reach() = default;

  // The rank's memory, as this process has it; null: it has no address for it.
  virtual std::byte* memory(int rank) const = 0;
  // Memory of this rank that is or was part of a dynamic window.
  virtual void attach(void*, MPI_Aint) {}
  virtual void detach(const void*) {}

  // Between the place and memory here that has its elements one after the other.
  virtual void put(const Place& to, const std::byte* from) = 0;
  virtual void get(const Place& from, std::byte* to) = 0;
  // There: element = in op element, for elements of the named type `basic`; one rank at a time updates a rank's memory.
  // in: null for MPI_NO_OP. before: gets what was there; or null. To other updates an element changes at once, as MPI
  // says of accumulates; put() and get() may see a part of that.
  virtual void update(const Place& at, const Op& op, const std::shared_ptr<const Type>& basic, const std::byte* in,
                      std::byte* before) = 0;
  // The same for: element = in, if it is equal to `compare`.
  virtual void swap(const Place& at, const std::byte* in, const std::byte* compare, std::byte* before) = 0;

  // Waits until this rank has the lock of that rank's memory.
  virtual void lock(int rank, Lock how) = 0;
  // Accesses under the lock have ended before the next holder has it.
  virtual void unlock(int rank, Lock how) = 0;
  // Tells each of the ranks; does not wait.
  virtual void tell(Word what, const std::vector<int>& ranks) = 0;
  // Takes what each of the ranks has told this one, once, and waits for it. wait false: takes all or, false, nothing.
  virtual bool hear(Word what, const std::vector<int>& ranks, bool wait) = 0;

  // From now on no other rank gets at this rank's memory: no call is under way on any, or the communicator has failed.
  virtual void close() {}
};

}  // namespace rondo_mpi
