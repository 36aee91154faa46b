// Collectives, each in three modes: blocking, with a request, persistent; and in two forms by the type of counts. All
// ranks of a communicator start them in one order, which MPI demands and the engine checks. A blocking call makes
// progress on its own thread. The datatypes and the operation are shared until the call is over, so the program may
// free them after a nonblocking one has begun.

#include "mpi/core/collective.h"

#include <utility>
#include <vector>

#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/fold.h"
#include "mpi/core/request.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// The blocking form: runs the call to its end. call(comm) reads the arguments, and what it returns runs the collective.
template <typename Call>
void block(MPI_Comm comm, const Call& call) {
  Collective collective(comm_of(comm));
  call(comm_of(comm))(collective);
  if (const auto finish = collective.finish()) finish();
}

// The nonblocking form. finish() unpacks the output when the work is over. Where add_request() throws, the call goes
// on: its memory is the request's (request.cc).
template <typename Call>
void begin(MPI_Comm comm, MPI_Request* request, const Call& call) {
  auto made = make_request(Request::Kind::kCollective, comm_of(comm).shared_from_this());
  Collective collective(*made->comm, *made->comm->engine);
  call (*made->comm)(collective);
  made->work = collective.work();
  made->finish = collective.finish();
  *request = add_request(std::move(made));
}

// The persistent form. Arguments are read now. Each MPI_Start starts the call, in an engine communicator of its own.
// The channel is opened before the arguments are read: a rank that refuses its own has taken its place in the series,
// so later requests still meet.
template <typename Call>
void prepare(MPI_Comm comm, MPI_Request* request, const Call& call) {
  auto made = make_request(Request::Kind::kCollective, comm_of(comm).shared_from_this());
  made->active = false;
  // It meets what the other ranks have made by the call in the same place, in whatever order they start them.
  Channel channel = open_channel(*made->comm, Series::kPersistent);
  made->channel = std::move(channel.engine);
  made->start = [launch = call(*made->comm)](Request& started) {
    Collective collective(*started.comm, *started.channel);
    launch(collective);
    started.work = collective.work();
    started.finish = collective.finish();
  };
  *request = add_request(std::move(made));
}

// Arguments as the core takes them. The type of a buffer that says MPI_IN_PLACE is not read.
Data data(const void* at, MPI_Count count, MPI_Datatype type) {
  return at == MPI_IN_PLACE ? Data{MPI_IN_PLACE, 0, byte_type()} : data_of(at, count, type);
}
// The buffer of a call in which this rank gives none.
Data nothing() { return {nullptr, 0, byte_type()}; }

// Blocks of one type; displacements count its extents. There is one for each rank of comm.peers(): in an
// intercommunicator those of the remote group.
template <typename Count, typename Displacement>
std::vector<Data> list(const Comm& comm, const void* at, const Count counts[], const Displacement displacements[],
                       MPI_Datatype type) {
  std::vector<Data> made;
  for (int r = 0; r < comm.peers(); ++r) {
    Data one = data(at, counts[r], type);
    one.data = static_cast<std::byte*>(one.data) + product(displacements[r], one.type->extent());
    made.push_back(std::move(one));
  }
  return made;
}
// The _w forms: a type for each block, and displacements in bytes.
template <typename Count, typename Displacement>
std::vector<Data> list(const Comm& comm, const void* at, const Count counts[], const Displacement displacements[],
                       const MPI_Datatype types[]) {
  std::vector<Data> made;
  for (int r = 0; r < comm.peers(); ++r) {
    Data one = data(at, counts[r], types[r]);
    one.data = static_cast<std::byte*>(one.data) + displacements[r];
    made.push_back(std::move(one));
  }
  return made;
}

// Whether this rank gives the buffer that only the root gives. Arguments that MPI calls significant at the root alone
// are not read elsewhere: they may be anything there.
bool is_root(const Comm& comm, int root) { return comm.inter ? root == MPI_ROOT : comm.rank == root; }
// Whether it gives the other one: in an intercommunicator the root does not.
bool is_leaf(const Comm& comm, int root) { return !comm.inter || (root != MPI_ROOT && root != MPI_PROC_NULL); }

// The buffer that is reduced: MPI_IN_PLACE stays as its address. A function of the program gets the type's handle, also
// where the program has freed it meanwhile.
Data reduced(const void* at, MPI_Count count, MPI_Datatype type) {
  Data made = data(nullptr, count, type);
  made.type = with_handle(made.type);
  made.data = const_cast<void*>(at);
  return made;
}

}  // namespace

// The calls of one collective, whose parameters PARAMS are. BODY takes the arguments as `of`, the communicator,
// needs them, and returns what starts the collective: once, or each time that a persistent one is started.
#define ENTRIES(Name, name, suffix, PARAMS, BODY)                                        \
  void MPI_##Name##suffix(PARAMS) { block(comm, BODY); }                                 \
  void MPI_I##name##suffix(PARAMS, MPI_Request* request) { begin(comm, request, BODY); } \
  void MPI_##Name##_init##suffix(PARAMS, MPI_Info, MPI_Request* request) { prepare(comm, request, BODY); }
#define BODY(...) [=]([[maybe_unused]] Comm& of) { __VA_ARGS__ }
// The function that it returns shares datatypes and operation, so a persistent call may start after the program has
// freed them.
#define LAUNCH(...) return [=](Collective& collective) { collective.__VA_ARGS__; };
#define COLLECTIVE(Name, name, PARAMS, ...) ENTRIES(Name, name, _c, PARAMS(MPI_Count, MPI_Aint), BODY(__VA_ARGS__))
// A collective that takes arrays of counts: both forms.
#define COLLECTIVE_V(Name, name, PARAMS, ...)                \
  ENTRIES(Name, name, , PARAMS(int, int), BODY(__VA_ARGS__)) \
  COLLECTIVE(Name, name, PARAMS, __VA_ARGS__)

#define BCAST(C, D) void *buffer, C count, MPI_Datatype datatype, int root, MPI_Comm comm
COLLECTIVE(Bcast, bcast, BCAST, {
  const Data all = root == MPI_PROC_NULL ? nothing() : data(buffer, count, datatype);
  LAUNCH(broadcast(all, root))
})

#define TWO(C, D) \
  const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf, C recvcount, MPI_Datatype recvtype
#define ROOTED(C, D) TWO(C, D), int root, MPI_Comm comm
COLLECTIVE(Gather, gather, ROOTED, {
  const Data send = is_leaf(of, root) ? data(sendbuf, sendcount, sendtype) : nothing();
  const Data receive = is_root(of, root) ? data(recvbuf, recvcount, recvtype) : nothing();
  LAUNCH(gather(send, receive, root))
})
COLLECTIVE(Scatter, scatter, ROOTED, {
  const Data send = is_root(of, root) ? data(sendbuf, sendcount, sendtype) : nothing();
  const Data receive = is_leaf(of, root) ? data(recvbuf, recvcount, recvtype) : nothing();
  LAUNCH(scatter(send, receive, root))
})

#define UNROOTED(C, D) TWO(C, D), MPI_Comm comm
COLLECTIVE(Allgather, allgather, UNROOTED, {
  const Data send = data(sendbuf, sendcount, sendtype);
  const Data receive = data(recvbuf, recvcount, recvtype);
  LAUNCH(all_gather(send, receive))
})
COLLECTIVE(Alltoall, alltoall, UNROOTED, {
  const Data send = data(sendbuf, sendcount, sendtype);
  const Data receive = data(recvbuf, recvcount, recvtype);
  LAUNCH(all_to_all(send, receive))
})

#define GATHERV(C, D)                                                                                             \
  const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf, const C recvcounts[], const D displs[], \
      MPI_Datatype recvtype
#define GATHERV_ROOTED(C, D) GATHERV(C, D), int root, MPI_Comm comm
COLLECTIVE_V(Gatherv, gatherv, GATHERV_ROOTED, {
  const Data send = is_leaf(of, root) ? data(sendbuf, sendcount, sendtype) : nothing();
  const auto receive = is_root(of, root) ? list(of, recvbuf, recvcounts, displs, recvtype) : std::vector<Data>{};
  LAUNCH(gather_v(send, receive, root))
})
#define ALLGATHERV(C, D) GATHERV(C, D), MPI_Comm comm
COLLECTIVE_V(Allgatherv, allgatherv, ALLGATHERV, {
  const Data send = data(sendbuf, sendcount, sendtype);
  const auto receive = list(of, recvbuf, recvcounts, displs, recvtype);
  LAUNCH(all_gather_v(send, receive))
})
#define SCATTERV(C, D)                                                                                            \
  const void *sendbuf, const C sendcounts[], const D displs[], MPI_Datatype sendtype, void *recvbuf, C recvcount, \
      MPI_Datatype recvtype, int root, MPI_Comm comm
COLLECTIVE_V(Scatterv, scatterv, SCATTERV, {
  const auto send = is_root(of, root) ? list(of, sendbuf, sendcounts, displs, sendtype) : std::vector<Data>{};
  const Data receive = is_leaf(of, root) ? data(recvbuf, recvcount, recvtype) : nothing();
  LAUNCH(scatter_v(send, receive, root))
})

// `sendtype` may be a list of types.
#define ALL_TO_ALL                                                                                                    \
  const auto send = sendbuf == MPI_IN_PLACE ? std::vector<Data>{} : list(of, sendbuf, sendcounts, sdispls, sendtype); \
  const auto receive = list(of, recvbuf, recvcounts, rdispls, recvtype);                                              \
  LAUNCH(all_to_all_v(send, receive))
#define ALLTOALLV(C, D)                                                                               \
  const void *sendbuf, const C sendcounts[], const D sdispls[], MPI_Datatype sendtype, void *recvbuf, \
      const C recvcounts[], const D rdispls[], MPI_Datatype recvtype, MPI_Comm comm
COLLECTIVE_V(Alltoallv, alltoallv, ALLTOALLV, {ALL_TO_ALL})
#define ALLTOALLW(C, D)                                                                                       \
  const void *sendbuf, const C sendcounts[], const D sdispls[], const MPI_Datatype sendtype[], void *recvbuf, \
      const C recvcounts[], const D rdispls[], const MPI_Datatype recvtype[], MPI_Comm comm
COLLECTIVE_V(Alltoallw, alltoallw, ALLTOALLW, {ALL_TO_ALL})

#define REDUCE(C, D) const void *sendbuf, void *recvbuf, C count, MPI_Datatype datatype, MPI_Op op
#define REDUCE_ROOTED(C, D) REDUCE(C, D), int root, MPI_Comm comm
COLLECTIVE(Reduce, reduce, REDUCE_ROOTED, {
  const Data send = root == MPI_PROC_NULL ? nothing() : reduced(sendbuf, count, datatype);
  const auto how = op_of(op);
  LAUNCH(reduce(send, recvbuf, *how, root))
})
#define REDUCE_ALL(C, D) REDUCE(C, D), MPI_Comm comm
COLLECTIVE(Allreduce, allreduce, REDUCE_ALL, {
  const Data send = reduced(sendbuf, count, datatype);
  const auto how = op_of(op);
  LAUNCH(all_reduce(send, recvbuf, *how))
})
// MPI has no scans of intercommunicators.
#define SCAN(exclusive)                                \
  intracomm_of(comm);                                  \
  const Data send = reduced(sendbuf, count, datatype); \
  const auto how = op_of(op);                          \
  LAUNCH(scan(send, recvbuf, *how, exclusive))
COLLECTIVE(Scan, scan, REDUCE_ALL, {SCAN(false)})
COLLECTIVE(Exscan, exscan, REDUCE_ALL, {SCAN(true)})

#define REDUCE_SCATTER(C, D) \
  const void *sendbuf, void *recvbuf, const C recvcounts[], MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
// The counts are of all ranks of this group, the same on each.
COLLECTIVE_V(Reduce_scatter, reduce_scatter, REDUCE_SCATTER, {
  const Data send = reduced(sendbuf, 0, datatype);
  const std::vector<MPI_Count> counts(recvcounts, recvcounts + of.size());
  const auto how = op_of(op);
  LAUNCH(reduce_scatter(send, recvbuf, counts, false, *how))
})
#define REDUCE_SCATTER_BLOCK(C, D) \
  const void *sendbuf, void *recvbuf, C recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm
// The count is that of one rank's block.
COLLECTIVE(Reduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER_BLOCK, {
  const Data send = reduced(sendbuf, recvcount, datatype);
  const auto how = op_of(op);
  LAUNCH(reduce_scatter(send, recvbuf, {recvcount}, true, *how))
})

namespace {
const auto kBarrier = [](Comm&) { return [](Collective& collective) { collective.barrier(); }; };
}  // namespace
void MPI_Barrier(MPI_Comm comm) { block(comm, kBarrier); }
void MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) { begin(comm, request, kBarrier); }
void MPI_Barrier_init(MPI_Comm comm, MPI_Info, MPI_Request* request) { prepare(comm, request, kBarrier); }

// --- With the neighbors of a topology

namespace {

// Blocks in the order of the neighbors; `at(i)`: that of neighbor i. Messages between two ranks match in this order, so
// in a cartesian topology, where what went in the positive direction comes from the negative one, the receives are
// swapped. A rank may be a neighbor several times. MPI_PROC_NULL has no block to move, but keeps its place in the
// buffer.
template <typename At>
std::vector<Part> neighbors(const Comm& of, const std::vector<int>& ranks, bool receives, const At& at) {
  const bool swap = receives && of.topology->kind == MPI_CART;
  std::vector<Part> parts;
  for (size_t k = 0; k < ranks.size(); ++k) {
    const size_t i = swap ? k ^ 1 : k;
    if (ranks[i] != MPI_PROC_NULL) parts.push_back({ranks[i], at(i)});
  }
  return parts;
}

// MPI_ERR_TOPOLOGY where there is none.
const Topology& topology_of(const Comm& comm) {
  require(comm.topology != nullptr, MPI_ERR_TOPOLOGY, "the communicator has no topology");
  return *comm.topology;
}

Data at_block(Data base, MPI_Aint bytes) {
  base.data = static_cast<std::byte*>(base.data) + bytes;
  return base;
}

}  // namespace

#define OUT(...) neighbors(of, topology_of(of).destinations, false, [&](size_t i) { return __VA_ARGS__; })
#define IN(...) neighbors(of, topology_of(of).sources, true, [&](size_t i) { return __VA_ARGS__; })
#define NEXT(base, i) at_block(base, product(static_cast<MPI_Aint>(i), product((base).count, (base).type->extent())))
#define PLACED(at, count, type, displacement) \
  at_block(data(at, count, type), product(displacement, type_of(type).extent()))

COLLECTIVE(Neighbor_allgather, neighbor_allgather, UNROOTED, {
  const Data send = data(sendbuf, sendcount, sendtype);
  const Data receive = data(recvbuf, recvcount, recvtype);
  const auto out = OUT((void(i), send)), in = IN(NEXT(receive, i));
  LAUNCH(exchange(out, in))
})
COLLECTIVE_V(Neighbor_allgatherv, neighbor_allgatherv, ALLGATHERV, {
  const Data send = data(sendbuf, sendcount, sendtype);
  const auto out = OUT((void(i), send)), in = IN(PLACED(recvbuf, recvcounts[i], recvtype, displs[i]));
  LAUNCH(exchange(out, in))
})
COLLECTIVE(Neighbor_alltoall, neighbor_alltoall, UNROOTED, {
  const Data send = data(sendbuf, sendcount, sendtype);
  const Data receive = data(recvbuf, recvcount, recvtype);
  const auto out = OUT(NEXT(send, i)), in = IN(NEXT(receive, i));
  LAUNCH(exchange(out, in))
})
COLLECTIVE_V(Neighbor_alltoallv, neighbor_alltoallv, ALLTOALLV, {
  const auto out = OUT(PLACED(sendbuf, sendcounts[i], sendtype, sdispls[i]));
  const auto in = IN(PLACED(recvbuf, recvcounts[i], recvtype, rdispls[i]));
  LAUNCH(exchange(out, in))
})
// Its displacements are MPI_Aint in both forms.
#define NEIGHBOR_ALLTOALLW(C, D) ALLTOALLW(C, MPI_Aint)
COLLECTIVE_V(Neighbor_alltoallw, neighbor_alltoallw, NEIGHBOR_ALLTOALLW, {
  const auto out = OUT(at_block(data(sendbuf, sendcounts[i], sendtype[i]), sdispls[i]));
  const auto in = IN(at_block(data(recvbuf, recvcounts[i], recvtype[i]), rdispls[i]));
  LAUNCH(exchange(out, in))
})

}  // namespace rondo_mpi::calls
