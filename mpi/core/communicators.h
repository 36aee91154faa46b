#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// The engine's communicator for a Comm: its last user says goodbye and waits for no rank (Leaving). The last request of
// one that was freed may end on a thread of the engine, where destroy() may not wait. Shared by the Comm, its buffered
// sends, and requests that have it as a channel.
std::shared_ptr<rondo::Communicator> engine_of(rondo::Communicator made);
// A series is an order of calls. Ranks that make a new communicator of some ranks of a parent match their calls by it:
// the n-th call of one rank in a series meets the n-th calls of the others. Threads of a program may make calls of
// different series in another order on each rank.
enum class Series : uint64_t {
  kIdup,
  kPersistent,
  kPartitioned,                 // and one for each tag
  kGroup = uint64_t{1} << 32,   // and one for each tag of MPI_Comm_create_group
  kNumber = uint64_t{1} << 62,  // and one for each Number
  kName = uint64_t{1} << 63,    // and one for each tag that is a string
};
// A rank's numbers repeat after 256, which are more than its threads use at once. The engine keeps a state for each
// series, so there are no more.
struct Number {
  int world_rank, number;
};
Number next_number();
uint64_t series_of(const Number& number);
uint64_t series_of(const char* name);

// Makes communicators of an existing one's ranks, called by the members of the new one. `ranks`: of `parent`'s group.
// No series: by all of them in one order with whatever they make of `parent`. It waits until all members have come.
std::shared_ptr<Comm> subset(Comm& parent, const std::vector<int>& ranks, std::optional<uint64_t> series = {});
// An intercommunicator of `local` and the ranks `remote` of the world. Called by the members of both groups. It waits
// until all of both groups have come. remote: not empty, and without a rank of `local`.
std::shared_ptr<Comm> between(const std::shared_ptr<Comm>& local, const std::vector<int>& remote, uint64_t series);
// A communicator of the engine for one use; `opened` is under way until all of its ranks have asked for it, and is
// empty where this rank is alone. Asked for in one order by its ranks in each series; does not wait.
struct Channel {
  std::shared_ptr<rondo::Communicator> engine;
  rondo::Work opened;
};
Channel open_channel(const Comm& comm, Series series);
Channel open_channel(const Comm& comm, std::span<const int> ranks, uint64_t series);
// The same ranks in the same order, without an engine. Name, attributes and info are left to the caller.
std::shared_ptr<Comm> copy_of(const Comm& comm);
// With one of its own, for messages that meet no others. Called by all ranks. Windows and files have one.
std::shared_ptr<Comm> duplicate(const Comm& comm);
// --- After a failure: extensions of MPI ("ULFM") on the engine's epochs (docs/recovery.md)

// What a rank does that revokes a communicator, in the error of the others.
inline constexpr char kRevoked[] = "MPIX_Comm_revoke";
// Ranks of the communicator whose failure this rank knows of. Ranks are the engine's: of both groups in an
// intercommunicator.
std::vector<int> failed(const Comm& comm);
// The communicator of the ranks that live, as far as this rank knows.
rondo::Communicator& living(const Comm& comm);
// The ranks that live agree which those are: living() from then on. Called by all of them. It waits for all that live,
// as Communicator::shrink() says, and throws what that throws.
void leave_out_failed(Comm& comm);
// Returns if the exception under way is one after which leave_out_failed() is to be called; else throws it on.
void require_failure();
// A communicator of the ranks that live. Called by all of them; what came of failures before may have called it
// otherwise.
std::shared_ptr<Comm> shrunk(Comm& comm);

// MPI_ERR_OTHER: this process has as many communicators as it may. For the check of a Verdict.
void require_room();
// Gives it a handle; null: MPI_COMM_NULL. Another thread may have taken the room since.
MPI_Comm publish(const std::shared_ptr<Comm>& comm);
// A handle of a group of ranks of the world. session: that it was made of, or null. An empty group is MPI_GROUP_EMPTY.
MPI_Group publish_group(std::vector<int> ranks, const std::shared_ptr<Session>& session);

}  // namespace rondo_mpi
