// Buffers of MPI_Bsend: of the process, of a communicator, of a session.

#include "mpi/core/buffer.h"

#include "mpi/core/errors.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

Buffer& session_buffer(MPI_Session session) { return object(world().sessions, session).buffer; }

}  // namespace

// The memory is never written: see Buffer. Detaching it waits for all messages that were sent from it.
void MPI_Buffer_attach_c(void* buffer, MPI_Count size) { attach(world().buffer, buffer, size); }
void MPI_Buffer_detach_c(void* buffer_addr, MPI_Count* size) { detach(world().buffer, buffer_addr, size); }
void MPI_Comm_attach_buffer_c(MPI_Comm comm, void* buffer, MPI_Count size) {
  attach(comm_of(comm).buffer, buffer, size);
}
void MPI_Comm_detach_buffer_c(MPI_Comm comm, void* buffer_addr, MPI_Count* size) {
  detach(comm_of(comm).buffer, buffer_addr, size);
}
void MPI_Session_attach_buffer_c(MPI_Session session, void* buffer, MPI_Count size) {
  attach(session_buffer(session), buffer, size);
}
void MPI_Session_detach_buffer_c(MPI_Session session, void* buffer_addr, MPI_Count* size) {
  detach(session_buffer(session), buffer_addr, size);
}

void MPI_Buffer_flush(void) { flush(world().buffer); }
// The request belongs to MPI_COMM_SELF, whose handler gets its error.
void MPI_Buffer_iflush(MPI_Request* request) { *request = start_flush(world().buffer, world().self); }
void MPI_Comm_flush_buffer(MPI_Comm comm) { flush(comm_of(comm).buffer); }
void MPI_Comm_iflush_buffer(MPI_Comm comm, MPI_Request* request) {
  Comm& of = comm_of(comm);
  *request = start_flush(of.buffer, of.shared_from_this());
}
void MPI_Session_flush_buffer(MPI_Session session) { flush(session_buffer(session)); }
void MPI_Session_iflush_buffer(MPI_Session session, MPI_Request* request) {
  *request = start_flush(session_buffer(session), world().self);
}

}  // namespace rondo_mpi::calls
