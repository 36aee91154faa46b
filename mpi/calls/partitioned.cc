// Partitioned messages: one message, which goes when all of its parts are ready.

#include <algorithm>
#include <exception>
#include <utility>

#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/message.h"
#include "mpi/core/request.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {
// Shared: the thread that waits for it may end it while another says that the last part is ready.
std::shared_ptr<Request> partitioned(MPI_Request request) {
  auto of = world().requests.share(request);
  require(of != nullptr && of->partitions > 0, MPI_ERR_REQUEST, "the request is null, freed, or not partitioned");
  return of;
}
// The thread that readies the last part sends the whole message. Any thread may ready a part. `unready` counts down
// from parts + 1: the last part leaves 1, and 0 says that the send has started.
void make_ready(Request& of, int partition) {
  require(partition >= 0 && partition < of.partitions, MPI_ERR_ARG, "there is no such partition");
  require(of.active && of.unready > 1, MPI_ERR_REQUEST, "the request is not active, or all of its parts are ready");
  if (of.unready.fetch_sub(1) > 2) return;
  try {
    of.ready(of);
  } catch (...) {  // the request's error, for the thread that waits for it
    of.finish = [why = std::current_exception()] { std::rethrow_exception(why); };
  }
  // The last step to 0 comes when the send has started: complete() and over() look for that.
  of.unready = 0;
  of.unready.notify_all();
  ends().tell();
}
// The channel of a message between this rank and itself: the second of the two calls for it takes what the first has
// made. It is made before the look, which must be one step: two threads may make the two calls.
std::shared_ptr<rondo::Communicator> channel_to_self(Comm& comm, bool receives, int tag, uint64_t series) {
  const int own[] = {comm.engine->rank()};
  std::shared_ptr<rondo::Communicator> channel = open_channel(comm, own, series).engine, unused;
  comm.half_messages.with([&](std::vector<Comm::HalfMessage>& all) {
    const auto other = std::find_if(all.begin(), all.end(), [&](const Comm::HalfMessage& half) {
      return half.tag == tag && half.receives != receives;
    });
    if (other == all.end()) {
      all.push_back({tag, receives, channel});
    } else {
      unused = std::exchange(channel, std::move(other->channel));  // ends after the lock
      all.erase(other);
    }
  });
  return channel;
}
// Both ranks make a channel for each request, in the order of their calls for one tag, which is how MPI matches them
// (MPI-4, chapter 4). So no other message meets it, in whatever order they start it.
void partitioned_call(void* data, int partitions, MPI_Count count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                      MPI_Request* request, Request::Kind kind) {
  require(partitions > 0, MPI_ERR_ARG, "there are no partitions");
  const bool receives = kind == Request::Kind::kReceive;
  const Envelope e = envelope(comm, data, product(count, partitions), type, peer, tag, false);  // no wildcards
  auto made = request_of(e, kind);
  const int own = e.comm->engine->rank(), other = e.nobody() ? own : e.comm->engine_rank(peer);
  const uint64_t series = static_cast<uint64_t>(Series::kPartitioned) + static_cast<uint64_t>(tag);
  const int ranks[] = {receives ? other : own, receives ? own : other};
  if (!e.nobody()) {
    made->channel =
        own == other ? channel_to_self(*e.comm, receives, tag, series) : open_channel(*e.comm, ranks, series).engine;
  }
  made->active = false;
  made->partitions = partitions;
  if (receives) {
    made->start = [kept = KeptEnvelope(e)](Request& started) { start_receive(started, kept); };
  } else {
    made->start = [](Request& started) { started.unready = started.partitions + 1; };
    made->ready = [kept = KeptEnvelope(e)](Request& ready) { start_send(ready, kept, Mode::kStandard); };
  }
  *request = add_request(std::move(made));
}
}  // namespace

// The parts' counts may differ on both sides, since all go as one message.
void MPI_Psend_init(const void* buf, int partitions, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                    MPI_Comm comm, MPI_Info, MPI_Request* request) {
  partitioned_call(const_cast<void*>(buf), partitions, count, datatype, dest, tag, comm, request, Request::Kind::kSend);
}
void MPI_Precv_init(void* buf, int partitions, MPI_Count count, MPI_Datatype datatype, int source, int tag,
                    MPI_Comm comm, MPI_Info, MPI_Request* request) {
  partitioned_call(buf, partitions, count, datatype, source, tag, comm, request, Request::Kind::kReceive);
}
void MPI_Pready(int partition, MPI_Request request) { calls::MPI_Pready_list(1, &partition, request); }
// A partition may be made ready once; several threads may do so for one request.
void MPI_Pready_range(int partition_low, int partition_high, MPI_Request request) {
  for (int i = partition_low; i <= partition_high; ++i) make_ready(*partitioned(request), i);
}
void MPI_Pready_list(int length, const int array_of_partitions[], MPI_Request request) {
  for (int i = 0; i < length; ++i) make_ready(*partitioned(request), array_of_partitions[i]);
}
// Parts come together, so it tells of all at once. Several threads may ask, also while another one waits.
void MPI_Parrived(MPI_Request request, int partition, int* flag) {
  const auto of = partitioned(request);
  require(partition >= 0 && partition < of->partitions, MPI_ERR_ARG, "there is no such partition");
  *flag = finished(*of);
}

}  // namespace rondo_mpi::calls
