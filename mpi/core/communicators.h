#pragma once

#include <mpi.h>

#include <memory>
#include <span>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// The engine's communicator for a Comm: its last user says goodbye and waits for nobody (Leaving). The last request of
// one that was freed may end on a thread of the engine, where destroy() may not wait.
std::shared_ptr<rondo::Communicator> engine_of(rondo::Communicator made);
// Makes communicators of an existing one's ranks, called by the members of the new one. `ranks`: of `parent`'s group.
std::shared_ptr<Comm> subset(Comm& parent, const std::vector<int>& ranks);
// An intercommunicator of `local` and the ranks `remote` of the world. Called by the members of both groups.
std::shared_ptr<Comm> between(const std::shared_ptr<Comm>& local, const std::vector<int>& remote);
// A communicator of the engine for one use; `opened` is under way until all of its ranks have asked for it, and is
// empty where this rank is alone. Asked for in one order by its ranks in each series; does not wait.
struct Channel {
  std::shared_ptr<rondo::Communicator> engine;
  rondo::Work opened;
};
enum class Series : uint64_t { kIdup, kPersistent, kPartitioned };  // the last: and one for each tag
Channel open_channel(const Comm& comm, Series series);
Channel open_channel(const Comm& comm, std::span<const int> ranks, uint64_t series);
// The same ranks in the same order, for messages of their own. engine: of these ranks; null: a new one, collective.
std::shared_ptr<Comm> duplicate(const Comm& comm, std::shared_ptr<rondo::Communicator> engine = nullptr);
// --- After a failure: extensions of MPI ("ULFM") on the engine's epochs (docs/recovery.md)

// What a rank does that revokes a communicator, in the error of the others.
inline constexpr char kRevoked[] = "MPIX_Comm_revoke";
// Ranks of the communicator whose failure this rank knows of.
std::vector<int> failed(const Comm& comm);
// The communicator of the ranks that live, as far as this rank knows.
rondo::Communicator& living(const Comm& comm);
// The ranks that live agree which those are: living() from then on. Called by all of them.
void leave_out_failed(Comm& comm);
// Whether the exception under way is one after which that is to be called; else it goes on.
void require_failure();
// A communicator of the ranks that live. Called by all of them; what came of failures before may have called it
// otherwise.
std::shared_ptr<Comm> shrunk(Comm& comm);

// Called by all ranks of a communicator before one is made of it: an error on all of them if any of them has as many as
// it may.
void require_room(const Comm& parent);
// The same where the ranks exchange something else, too: what each says, then the largest of that.
int full_rank(const Comm& parent);
void require_room(const Comm& parent, int full);
// Gives it a handle. Errors go to the handler of the one that it was made of.
MPI_Comm publish(const std::shared_ptr<Comm>& comm);

// Collective over the group of an intracommunicator, or the local one of an intercommunicator.
std::vector<int> all_gather(Comm& comm, const std::vector<int>& own);

}  // namespace rondo_mpi
