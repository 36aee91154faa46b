// The calls of programs that go on after a failure: User Level Failure Mitigation, as MPICH and Open MPI name them.
// They map to the engine's shrink() and commit(): after a failure a communicator goes on as Comm::after, among the
// ranks that live.

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// `rank`: the engine's, which in an intercommunicator has both groups.
int world_rank(const Comm& comm, int rank) {
  const bool own = rank >= comm.first && rank < comm.first + comm.size();
  return own ? comm.members[static_cast<size_t>(rank - comm.first)]
             : comm.remote[static_cast<size_t>(rank - comm.remote_first)];
}

// The group of the first `count` ranks that have failed.
MPI_Group failed_group(const Comm& comm, size_t count) {
  std::vector<int> ranks;
  for (const int rank : failed(comm)) {
    if (ranks.size() < count) ranks.push_back(world_rank(comm, rank));
  }
  return publish_group(std::move(ranks), nullptr);
}

}  // namespace

// The engine's abort reaches all ranks. kRevoked in its text tells a revocation from an end of the job. Not collective:
// any rank may call it, and pending calls of all ranks end with kCommRevoked's class.
void MPIX_Comm_revoke(MPI_Comm comm) {
  Comm& of = comm_of(comm);
  if (!of.engine->error()) of.engine->abort(kRevoked);
}
void MPIX_Comm_is_revoked(MPI_Comm comm, int* flag) {
  const Comm& of = comm_of(comm);
  const std::optional<rondo::Error> error = of.engine->error();
  *flag = of.after != nullptr || (error && failure_of(*error).code == kCommRevoked);
}
// Collective of the ranks that live. The new communicator has their order.
void MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm* newcomm) { *newcomm = publish(shrunk(intracomm_of(comm))); }

// The steps of commit() are numbered by these calls. A rank that failed in one finds, among those that live, whether
// all had come to it. Collective of the ranks that live: all return the same flag. A rank that fails meanwhile is left
// out, which is no error.
void MPIX_Comm_agree(MPI_Comm comm, int* flag) {
  Comm& of = intracomm_of(comm);
  const int64_t step = living(of).committed() + 1;
  int all = *flag;
  while (living(of).committed() < step) {
    try {
      living(of).all_reduce(std::span(flag, 1), std::span(&all, 1), rondo::Op::kBitAnd);
      living(of).commit(step, static_cast<uint64_t>(all));
    } catch (...) {
      require_failure();
      leave_out_failed(of);
    }
  }
  *flag = all;
}

// Local: ranks may know of different failures.
void MPIX_Comm_get_failed(MPI_Comm comm, MPI_Group* group) {
  const Comm& of = comm_of(comm);
  *group = failed_group(of, static_cast<size_t>(of.engine->size()));
}
// Acknowledges the first so many of failed(). MPI lets receives from any source go on after that; here the communicator
// has failed, and they fail with it.
void MPIX_Comm_ack_failed(MPI_Comm comm, int most, int* acknowledged) {
  Comm& of = comm_of(comm);
  of.acknowledged = std::max(of.acknowledged, std::min(most, static_cast<int>(failed(of).size())));
  *acknowledged = of.acknowledged;
}
void MPIX_Comm_failure_ack(MPI_Comm comm) {
  int all = 0;
  calls::MPIX_Comm_ack_failed(comm, std::numeric_limits<int>::max(), &all);
}
void MPIX_Comm_failure_get_acked(MPI_Comm comm, MPI_Group* group) {
  const Comm& of = comm_of(comm);
  *group = failed_group(of, static_cast<size_t>(of.acknowledged));
}

}  // namespace rondo_mpi::calls
