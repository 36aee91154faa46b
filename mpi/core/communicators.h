#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// Makes communicators of an existing one's ranks, called by the members of the new one. `ranks`: of `parent`'s group.
std::shared_ptr<Comm> subset(Comm& parent, const std::vector<int>& ranks);
// An intercommunicator of `local` and the ranks `remote` of the world. Called by the members of both groups.
std::shared_ptr<Comm> between(const std::shared_ptr<Comm>& local, const std::vector<int>& remote);
// The same ranks in the same order, for messages of their own. Collective.
std::shared_ptr<Comm> duplicate(Comm& comm);
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

// Gives it a handle. Errors go to the handler of the one that it was made of.
MPI_Comm publish(const std::shared_ptr<Comm>& comm);

// Collective over the group of an intracommunicator, or the local one of an intercommunicator.
std::vector<int> all_gather(Comm& comm, const std::vector<int>& own);

}  // namespace rondo_mpi
