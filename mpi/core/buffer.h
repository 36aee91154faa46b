#pragma once

#include <mpi.h>

#include <memory>

#include "mpi/core/message.h"
#include "mpi/core/objects.h"

namespace rondo_mpi {

// Buffered sends: a copy goes, and the buffer that the program attached only bounds how much is under way. Any thread.

// MPI_ERR_BUFFER: one is attached already. MPI allows one at a time for each of its owners.
void attach(Buffer& buffer, void* data, MPI_Count bytes);
// Waits until all buffered messages have gone: the program may free the memory then. *address gets it.
void detach(Buffer& buffer, void* address, MPI_Count* bytes);
// Waits until what the buffer has now has been sent. Throws the last failure, after all have ended.
void flush(Buffer& buffer);
// The same as a request, which belongs to the communicator.
MPI_Request start_flush(Buffer& buffer, const std::shared_ptr<Comm>& comm);
// Takes the memory of the buffer of the communicator, else of its session, else of the process. It does not wait.
// MPI_ERR_BUFFER: there is no room.
void send_buffered(const Envelope& e);

}  // namespace rondo_mpi
