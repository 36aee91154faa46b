// Probes: what has come and was not received. MPI_Mrecv() and MPI_Imrecv(), which take a matched message, are receives
// (calls/messages.cc).

#include <optional>

#include "mpi/core/errors.h"
#include "mpi/core/message.h"
#include "mpi/core/request.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// It checks its arguments as a receive does.
rondo::MessageCall probe_of(const Comm& comm, int source, int tag, rondo::MessageKind kind) {
  check_peer(comm, source, true);
  check_tag(tag, true);
  return {.kind = kind,
          .dtype = rondo::DType::kUint8,
          .peer = source == MPI_ANY_SOURCE ? rondo::kAnySource : comm.engine_rank(source),
          .tag = tag == MPI_ANY_TAG ? rondo::kAnyTag : tag};
}

// What is there at once. From ranks that have freed the communicator nothing comes any more, which is no error of a
// question.
std::optional<rondo::Message> look(Comm& comm, const rondo::MessageCall& probe) {
  try {
    return comm.engine->look(probe);
  } catch (const rondo::Exception& exception) {
    if (exception.code() != rondo::ErrorCode::kPeerLeft) throw;
    return std::nullopt;
  }
}

MPI_Message keep(Comm& comm, const rondo::Message& found) {
  auto message = std::make_shared<MatchedMessage>();
  message->comm = comm.shared_from_this();
  message->matched = found.matched;
  return world().messages.add(std::move(message));
}

}  // namespace

// The message stays for any receive of any thread; MPI_Mprobe() takes it out of what others see.
void MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status) {
  Comm& of = comm_of(comm);
  const auto call = probe_of(of, source, tag, rondo::MessageKind::kProbe);
  set_status(status, source == MPI_PROC_NULL ? kNobody : outcome_of(of, of.engine->run(call)));
}
// It makes progress, so a program may poll by it.
void MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  Comm& of = comm_of(comm);
  const auto call = probe_of(of, source, tag, rondo::MessageKind::kProbe);
  const auto found = source == MPI_PROC_NULL ? std::nullopt : look(of, call);
  *flag = found.has_value() || source == MPI_PROC_NULL;
  if (*flag) set_status(status, found ? outcome_of(of, *found) : kNobody);
}
// No other call sees the message from then on. MPI_Mrecv() and MPI_Imrecv() take it, also on another thread.
void MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
  Comm& of = comm_of(comm);
  const auto call = probe_of(of, source, tag, rondo::MessageKind::kMatchedProbe);
  *message = MPI_MESSAGE_NO_PROC;
  if (source == MPI_PROC_NULL) return set_status(status, kNobody);
  const rondo::Message found = of.engine->run(call);
  *message = keep(of, found);
  set_status(status, outcome_of(of, found));
}
// *message is MPI_MESSAGE_NULL where nothing was found.
void MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
  Comm& of = comm_of(comm);
  const auto call = probe_of(of, source, tag, rondo::MessageKind::kMatchedProbe);
  *flag = 1;
  *message = MPI_MESSAGE_NO_PROC;
  if (source == MPI_PROC_NULL) return set_status(status, kNobody);
  const auto found = look(of, call);
  *flag = found.has_value();
  *message = found ? keep(of, *found) : MPI_MESSAGE_NULL;
  if (found) set_status(status, outcome_of(of, *found));
}

}  // namespace rondo_mpi::calls
