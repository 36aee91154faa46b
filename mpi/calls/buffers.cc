// Buffers of MPI_Bsend: of the process, of a communicator, of a session.

#include "mpi/core/buffer.h"

#include "mpi/core/errors.h"
#include "mpi/core/world.h"

using namespace rondo_mpi;

namespace {

Buffer& session_buffer(MPI_Session session) { return object(world().sessions, session).buffer; }

}  // namespace

// The memory is never written: see Buffer. Detaching it waits for all messages that were sent from it.
int MPI_Buffer_attach_c(void* buffer, MPI_Count size) {
  return run(__func__, [&] { attach(world().buffer, buffer, size); });
}
int MPI_Buffer_detach_c(void* buffer_addr, MPI_Count* size) {
  return run(__func__, [&] { detach(world().buffer, buffer_addr, size); });
}
int MPI_Comm_attach_buffer_c(MPI_Comm comm, void* buffer, MPI_Count size) {
  return on(comm, __func__, [&] { attach(comm_of(comm).buffer, buffer, size); });
}
int MPI_Comm_detach_buffer_c(MPI_Comm comm, void* buffer_addr, MPI_Count* size) {
  return on(comm, __func__, [&] { detach(comm_of(comm).buffer, buffer_addr, size); });
}
int MPI_Session_attach_buffer_c(MPI_Session session, void* buffer, MPI_Count size) {
  return on_session(session, __func__, [&] { attach(session_buffer(session), buffer, size); });
}
int MPI_Session_detach_buffer_c(MPI_Session session, void* buffer_addr, MPI_Count* size) {
  return on_session(session, __func__, [&] { detach(session_buffer(session), buffer_addr, size); });
}

int MPI_Buffer_flush(void) {
  return run(__func__, [&] { flush(world().buffer); });
}
// The request belongs to MPI_COMM_SELF, whose handler gets its error.
int MPI_Buffer_iflush(MPI_Request* request) {
  return run(__func__, [&] { *request = start_flush(world().buffer, world().self); });
}
int MPI_Comm_flush_buffer(MPI_Comm comm) {
  return on(comm, __func__, [&] { flush(comm_of(comm).buffer); });
}
int MPI_Comm_iflush_buffer(MPI_Comm comm, MPI_Request* request) {
  return on(comm, __func__, [&] {
    Comm& of = comm_of(comm);
    *request = start_flush(of.buffer, of.shared_from_this());
  });
}
int MPI_Session_flush_buffer(MPI_Session session) {
  return on_session(session, __func__, [&] { flush(session_buffer(session)); });
}
int MPI_Session_iflush_buffer(MPI_Session session, MPI_Request* request) {
  return on_session(session, __func__, [&] { *request = start_flush(session_buffer(session), world().self); });
}
