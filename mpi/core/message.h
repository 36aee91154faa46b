#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// Ready sends are standard ones: the engine gains nothing by a receive that is there already.
enum class Mode { kStandard, kSynchronous, kBuffered };

// One message's arguments, checked. A message is bytes to the engine. It does not own the communicator, which the call
// holds.
struct Envelope {
  Comm* comm;  // the call's (errors.h)
  std::shared_ptr<const Type> type;
  void* data;
  MPI_Count count;  // elements of `type`
  int peer;         // rank of the communicator, MPI_PROC_NULL, or for receives MPI_ANY_SOURCE
  int tag;          // MPI_TAG_UB is the largest int, so none is too large

  bool nobody() const { return peer == MPI_PROC_NULL; }
  MPI_Count bytes() const { return product(count, type->size); }
};
// For a request, which may outlive the communicator's handle.
struct KeptEnvelope : Envelope {
  explicit KeptEnvelope(const Envelope& e) : Envelope(e), keeps_comm(e.comm->shared_from_this()) {}
  std::shared_ptr<const Comm> keeps_comm;
};

// Throw MPI's error for the argument. any: MPI_ANY_SOURCE, MPI_ANY_TAG are allowed, too.
void check_peer(const Comm& comm, int peer, bool any);
void check_tag(int tag, bool any);
// Throws MPI's error for each argument before anything is sent. They are checked also where the peer is MPI_PROC_NULL.
Envelope envelope(MPI_Comm comm, const void* data, MPI_Count count, MPI_Datatype type, int peer, int tag,
                  bool receives);
// The engine's call for it. data: where the bytes lie, packed.
rondo::MessageCall call_of(const Envelope& e, rondo::MessageKind kind, void* data);
// The same of a send that is not a buffered one.
rondo::MessageCall send_of(const Envelope& e, Mode mode, void* data);

// The status of a receive from MPI_PROC_NULL (MPI-4, 3.11).
inline constexpr Outcome kNobody{MPI_PROC_NULL, MPI_ANY_TAG, 0};

// The bytes of a message that is sent or received: where it lies, or memory beside it.
struct PackedData {
  explicit PackedData(const Envelope& e)
      : beside(e.type->dense || e.count == 0 ? nullptr : std::make_shared<std::byte[]>(static_cast<size_t>(e.bytes()))),
        data(beside == nullptr ? e.data : beside.get()) {}
  std::shared_ptr<std::byte[]> beside;
  void* data;
};
// For what is sent: memory beside is filled with it.
PackedData packed(const Envelope& e);
// bytes: those that came, which may be fewer than the buffer has. Part of an element is stored, and then is an error.
void unpack_from(const Envelope& e, const PackedData& memory, MPI_Count bytes);

// A new request of the message's communicator.
std::shared_ptr<Request> request_of(const Envelope& e, Request::Kind kind);
// Makes a send that leaves no work: a buffered one, and one to MPI_PROC_NULL, which is nothing. False: it is another
// one.
bool send_at_once(const Envelope& e, Mode mode);
// Start the message, by the request's channel if it has one. The request stays where it is until the end of a receive:
// the function that unpacks refers to it. matched: what MPI_Mprobe() found, or 0.
void start_send(Request& request, const Envelope& e, Mode mode);
void start_receive(Request& request, const Envelope& e, uint64_t matched = 0);

}  // namespace rondo_mpi
