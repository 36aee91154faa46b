// Topologies: cartesian, graph, distributed graph. A topology is an attribute of a new communicator: it is made before
// the communicator has a handle, and does not change. The functions that ask are local.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "mpi/core/agreement.h"
#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// The reference is good as long as the communicator, which the call holds.
const Topology& topology_of(MPI_Comm comm, int kind) {
  const Comm& of = comm_of(comm);
  require(of.topology != nullptr && of.topology->kind == kind, MPI_ERR_TOPOLOGY,
          "the communicator has no such topology");
  return *of.topology;
}

// Row-major: the last dimension changes fastest.
std::vector<int> coordinates(const Topology& t, int rank) {
  std::vector<int> at(t.dims.size());
  for (size_t d = t.dims.size(); d-- > 0; rank /= t.dims[d]) at[d] = rank % t.dims[d];
  return at;
}

// MPI_PROC_NULL outside of a dimension that is not periodic.
int rank_at(const Topology& t, std::vector<int> at) {
  int rank = 0;
  for (size_t d = 0; d < t.dims.size(); ++d) {
    const int size = t.dims[d];
    if (t.periods[d] != 0) at[d] = (at[d] % size + size) % size;
    if (at[d] < 0 || at[d] >= size) return MPI_PROC_NULL;
    rank = rank * size + at[d];
  }
  return rank;
}

// by: of 64 bits, which hold the sum and the negative of any int.
int shifted(const Topology& t, int rank, size_t direction, int64_t by) {
  std::vector<int> at = coordinates(t, rank);
  const int64_t size = t.dims[direction], to = at[direction] + by;
  if (t.periods[direction] == 0 && (to < 0 || to >= size)) return MPI_PROC_NULL;
  at[direction] = static_cast<int>(to % size);  // rank_at() takes a negative one
  return rank_at(t, at);
}

// In each dimension the neighbor below comes before the one above: MPI's order of blocks in neighborhood collectives.
std::shared_ptr<Topology> cartesian(std::vector<int> dims, std::vector<int> periods, int rank) {
  auto made = std::make_shared<Topology>();
  made->kind = MPI_CART;
  made->dims = std::move(dims);
  made->periods = std::move(periods);
  for (size_t d = 0; d < made->dims.size(); ++d) {
    for (const int by : {-1, 1}) made->sources.push_back(shifted(*made, rank, d, by));
  }
  made->destinations = made->sources;
  return made;
}

// Requires checked_dims(), or it may overflow.
int product(const std::vector<int>& dims) { return std::accumulate(dims.begin(), dims.end(), 1, std::multiplies<>()); }

// The product is compared at every factor, so it cannot overflow.
std::vector<int> checked_dims(int ndims, const int dims[], int most) {
  require(ndims >= 0, MPI_ERR_DIMS, "the number of dimensions is negative");
  std::vector<int> made(dims, dims + ndims);
  int64_t size = 1;
  for (const int dim : made) {
    require(dim > 0, MPI_ERR_DIMS, "a dimension is not positive");
    size *= dim;
    require(size <= most, MPI_ERR_DIMS, "the dimensions have more places than the communicator has ranks");
  }
  return made;
}

// Ranks 0 to count - 1, which form the new communicator; the others get none.
std::vector<int> first_ranks(int count) {
  std::vector<int> made(static_cast<size_t>(count));
  std::iota(made.begin(), made.end(), 0);
  return made;
}

// Neighbors of `rank` in a graph: edges from index[rank - 1] to index[rank].
std::vector<int> graph_neighbors(const Topology& t, int rank) {
  require(rank >= 0 && static_cast<size_t>(rank) < t.index.size(), MPI_ERR_RANK, "the rank is not in the communicator");
  const auto r = static_cast<size_t>(rank);
  return {t.edges.begin() + (r == 0 ? 0 : t.index[r - 1]), t.edges.begin() + t.index[r]};
}

// `parts` factors of `product`, none below `least`, added to `sizes`; what differs least is kept in `best`.
void find_even(int product, size_t parts, int least, std::vector<int>& sizes, std::vector<int>& best) {
  const auto span = [](const std::vector<int>& of) { return of.back() - of.front(); };
  if (parts == 1) {
    sizes.push_back(product);
    if (best.empty() || span(sizes) < span(best)) best = sizes;
    return sizes.pop_back();
  }
  // The last one is at least the root of what is left. The first ones are tried from their root down: the nearer the
  // first is to the root, the less can they differ.
  const auto root = static_cast<int>(std::pow(product, 1.0 / static_cast<double>(parts)) + 1e-9);
  for (int size = root; size >= least; --size) {
    if (!best.empty() && root - (sizes.empty() ? size : sizes.front()) >= span(best)) return;
    if (product % size != 0) continue;
    sizes.push_back(size);
    find_even(product / size, parts - 1, size, sizes, best);
    sizes.pop_back();
  }
}

// The dimensions that are 0 get sizes that differ as little as they can, the largest first.
void fill_dims(int nodes, int ndims, int dims[]) {
  require(nodes > 0, MPI_ERR_ARG, "the number of nodes is not positive");
  require(ndims >= 0, MPI_ERR_DIMS, "the number of dimensions is negative");
  std::vector<size_t> open;
  int left = nodes;
  for (int d = 0; d < ndims; ++d) {
    require(dims[d] >= 0, MPI_ERR_DIMS, "a dimension is negative");
    if (dims[d] == 0) {
      open.push_back(static_cast<size_t>(d));
      continue;
    }
    require(left % dims[d] == 0, MPI_ERR_DIMS, "the fixed dimensions do not divide the number of nodes");
    left /= dims[d];
  }
  require(!open.empty() || left == 1, MPI_ERR_DIMS, "the dimensions do not have as many places as there are nodes");
  std::vector<int> tried, sizes;
  if (!open.empty()) find_even(left, open.size(), 1, tried, sizes);
  for (size_t i = 0; i < open.size(); ++i) dims[open[i]] = sizes[open.size() - 1 - i];
}

void check_neighbors(const std::vector<int>& neighbors, int size) {
  for (const int rank : neighbors) {
    if (rank == MPI_PROC_NULL || (rank >= 0 && rank < size)) continue;
    fail(MPI_ERR_ARG, "a neighbor is " + std::to_string(rank) + ", but ranks are 0 to " + std::to_string(size - 1));
  }
}

// The ranks have agreed.
MPI_Comm with_graph(Comm& comm, std::shared_ptr<Topology> topology) {
  topology->kind = MPI_DIST_GRAPH;
  auto made = subset(comm, first_ranks(comm.size()));
  made->topology = std::move(topology);
  return publish(made);
}

// The program's array has room for `most`.
template <typename Number>
void copy_some(const std::vector<int>& from, int most, Number* to) {
  std::copy_n(from.begin(), std::min(from.size(), static_cast<size_t>(std::max(most, 0))), to);
}

bool weighted(const int* weights) { return weights != MPI_UNWEIGHTED; }

}  // namespace

// MPI_UNDEFINED: it has none.
void MPI_Topo_test(MPI_Comm comm, int* status) {
  const Comm& of = comm_of(comm);
  *status = of.topology == nullptr ? MPI_UNDEFINED : of.topology->kind;
}
// Local. Dimensions that are not 0 stay.
void MPI_Dims_create(int nnodes, int ndims, int dims[]) { fill_dims(nnodes, ndims, dims); }

// Never reorders, here or for graphs: ranks keep their numbers, which launchers have placed. Ranks beyond the grid get
// MPI_COMM_NULL.
void MPI_Cart_create(MPI_Comm comm_old, int ndims, const int dims[], const int periods[], int, MPI_Comm* comm_cart) {
  Comm& of = intracomm_of(comm_old);
  *comm_cart = MPI_COMM_NULL;  // also after an error
  std::vector<int> sizes;
  agree(of, [&] {
    require_room();
    sizes = checked_dims(ndims, dims, of.size());
  });
  const int count = product(sizes);
  std::shared_ptr<Comm> made;
  if (of.rank < count) {
    made = subset(of, first_ranks(count));
    made->topology = cartesian(sizes, std::vector<int>(periods, periods + ndims), of.rank);
  }
  *comm_cart = publish(made);
}
void MPI_Cartdim_get(MPI_Comm comm, int* ndims) { *ndims = static_cast<int>(topology_of(comm, MPI_CART).dims.size()); }
void MPI_Cart_get(MPI_Comm comm, int maxdims, int dims[], int periods[], int coords[]) {
  const Topology& t = topology_of(comm, MPI_CART);
  copy_some(t.dims, maxdims, dims);
  copy_some(t.periods, maxdims, periods);
  copy_some(coordinates(t, comm_of(comm).rank), maxdims, coords);
}
// Coordinates of a periodic dimension may be any number.
void MPI_Cart_rank(MPI_Comm comm, const int coords[], int* rank) {
  const Topology& t = topology_of(comm, MPI_CART);
  *rank = rank_at(t, std::vector<int>(coords, coords + t.dims.size()));
  require(*rank != MPI_PROC_NULL, MPI_ERR_ARG, "a coordinate lies outside of its dimension");
}
void MPI_Cart_coords(MPI_Comm comm, int rank, int maxdims, int coords[]) {
  const Topology& t = topology_of(comm, MPI_CART);
  require(rank >= 0 && rank < comm_of(comm).size(), MPI_ERR_RANK, "the rank is not in the communicator");
  copy_some(coordinates(t, rank), maxdims, coords);
}
// MPI_PROC_NULL where there is no neighbor.
void MPI_Cart_shift(MPI_Comm comm, int direction, int disp, int* rank_source, int* rank_dest) {
  const Topology& t = topology_of(comm, MPI_CART);
  require(direction >= 0 && static_cast<size_t>(direction) < t.dims.size(), MPI_ERR_ARG, "there is no such dimension");
  *rank_source = shifted(t, comm_of(comm).rank, static_cast<size_t>(direction), -int64_t{disp});
  *rank_dest = shifted(t, comm_of(comm).rank, static_cast<size_t>(direction), disp);
}
// Collective; ranks that have the same coordinates in the dimensions that go form a communicator each.
void MPI_Cart_sub(MPI_Comm comm, const int remain_dims[], MPI_Comm* newcomm) {
  Comm& of = comm_of(comm);
  const Topology& t = topology_of(comm, MPI_CART);
  const std::vector<int> own = coordinates(t, of.rank);
  std::vector<int> dims, periods, ranks;
  for (size_t d = 0; d < t.dims.size(); ++d) {
    if (remain_dims[d] == 0) continue;
    dims.push_back(t.dims[d]);
    periods.push_back(t.periods[d]);
  }
  for (int rank = 0; rank < of.size(); ++rank) {  // those with the own coordinates in the other dimensions
    const std::vector<int> at = coordinates(t, rank);
    bool in = true;
    for (size_t d = 0; d < at.size(); ++d) in = in && (remain_dims[d] != 0 || at[d] == own[d]);
    if (in) ranks.push_back(rank);
  }
  agree(of, [] { require_room(); });
  auto made = subset(of, ranks);
  made->topology = cartesian(dims, periods, made->rank);
  *newcomm = publish(made);
}
// Nothing is reordered, so the rank stays what it is.
void MPI_Cart_map(MPI_Comm comm, int ndims, const int dims[], const int[], int* newrank) {
  const Comm& of = intracomm_of(comm);
  *newrank = of.rank < product(checked_dims(ndims, dims, of.size())) ? of.rank : MPI_UNDEFINED;
}

// All ranks give the whole graph, and keep it.
void MPI_Graph_create(MPI_Comm comm_old, int nnodes, const int index[], const int edges[], int, MPI_Comm* comm_graph) {
  Comm& of = intracomm_of(comm_old);
  auto t = std::make_shared<Topology>();
  t->kind = MPI_GRAPH;
  agree(of, [&] {
    require_room();
    require(nnodes >= 0 && nnodes <= of.size(), MPI_ERR_ARG,
            "the number of nodes is negative, or larger than that of the communicator's ranks");
    t->index.assign(index, index + nnodes);
    require(nnodes == 0 || (t->index[0] >= 0 && std::is_sorted(t->index.begin(), t->index.end())), MPI_ERR_ARG,
            "an index of the graph is negative, or less than the one before");
    if (nnodes > 0) t->edges.assign(edges, edges + t->index.back());
    check_neighbors(t->edges, nnodes);
  });
  std::shared_ptr<Comm> made;
  if (of.rank < nnodes) {
    t->sources = t->destinations = graph_neighbors(*t, of.rank);
    made = subset(of, first_ranks(nnodes));
    made->topology = std::move(t);
  }
  *comm_graph = publish(made);
}
void MPI_Graphdims_get(MPI_Comm comm, int* nnodes, int* nedges) {
  const Topology& t = topology_of(comm, MPI_GRAPH);
  *nnodes = static_cast<int>(t.index.size());
  *nedges = static_cast<int>(t.edges.size());
}
void MPI_Graph_get(MPI_Comm comm, int maxindex, int maxedges, int index[], int edges[]) {
  const Topology& t = topology_of(comm, MPI_GRAPH);
  copy_some(t.index, maxindex, index);
  copy_some(t.edges, maxedges, edges);
}
void MPI_Graph_neighbors_count(MPI_Comm comm, int rank, int* nneighbors) {
  *nneighbors = static_cast<int>(graph_neighbors(topology_of(comm, MPI_GRAPH), rank).size());
}
// Any rank may ask about any other.
void MPI_Graph_neighbors(MPI_Comm comm, int rank, int maxneighbors, int neighbors[]) {
  copy_some(graph_neighbors(topology_of(comm, MPI_GRAPH), rank), maxneighbors, neighbors);
}
// The rank stays, since nothing is reordered.
void MPI_Graph_map(MPI_Comm comm, int nnodes, const int[], const int[], int* newrank) {
  const Comm& of = intracomm_of(comm);
  require(nnodes > 0 && nnodes <= of.size(), MPI_ERR_ARG, "the graph has more nodes than the communicator has ranks");
  *newrank = of.rank < nnodes ? of.rank : MPI_UNDEFINED;
}

// Each rank gives its own edges. That both ends of an edge agree is not checked.
void MPI_Dist_graph_create_adjacent(MPI_Comm comm_old, int indegree, const int sources[], const int* sourceweights,
                                    int outdegree, const int destinations[], const int* destweights, MPI_Info, int,
                                    MPI_Comm* comm_dist_graph) {
  Comm& of = intracomm_of(comm_old);
  auto t = std::make_shared<Topology>();
  agree(of, [&] {
    require_room();
    require(indegree >= 0 && outdegree >= 0, MPI_ERR_ARG, "a degree is negative");
    t->sources.assign(sources, sources + indegree);
    t->destinations.assign(destinations, destinations + outdegree);
    check_neighbors(t->sources, of.size());
    check_neighbors(t->destinations, of.size());
  });
  t->weighted = weighted(sourceweights) && weighted(destweights);
  if (t->weighted) {
    if (indegree > 0) t->source_weights.assign(sourceweights, sourceweights + indegree);
    if (outdegree > 0) t->destination_weights.assign(destweights, destweights + outdegree);
  }
  *comm_dist_graph = with_graph(of, std::move(t));
}
// Any rank may give any edge. Every rank holds all edges of the graph until the call ends.
void MPI_Dist_graph_create(MPI_Comm comm_old, int n, const int sources[], const int degrees[], const int destinations[],
                           const int* weights, MPI_Info, int, MPI_Comm* comm_dist_graph) {
  Comm& of = intracomm_of(comm_old);
  std::vector<int> own;  // (source, destination, weight) of each edge
  agree(of, [&] {
    require_room();
    require(n >= 0, MPI_ERR_ARG, "the number of sources is negative");
    for (int i = 0, edge = 0; i < n; ++i) {
      require(degrees[i] >= 0, MPI_ERR_ARG, "a degree is negative");
      for (int k = 0; k < degrees[i]; ++k, ++edge) {
        check_neighbors({sources[i], destinations[edge]}, of.size());
        own.insert(own.end(), {sources[i], destinations[edge], weighted(weights) ? weights[edge] : 1});
      }
    }
  });
  // Every rank learns all edges, and takes its own.
  const int told[] = {static_cast<int>(own.size()), weighted(weights)};
  std::vector<int> lengths(2 * static_cast<size_t>(of.size()));
  of.engine->all_gather(told, lengths);
  std::vector<uint64_t> counts;
  auto t = std::make_shared<Topology>();
  for (size_t r = 0; r < lengths.size(); r += 2) {
    counts.push_back(static_cast<uint64_t>(lengths[r]));
    t->weighted = t->weighted || lengths[r + 1] != 0;
  }
  std::vector<int> all(std::accumulate(counts.begin(), counts.end(), size_t{0}));
  of.engine->all_gather_v(own.data(), all.data(), counts, {}, rondo::DType::kInt32);
  for (size_t e = 0; e < all.size(); e += 3) {
    if (all[e] == of.rank) {
      t->destinations.push_back(all[e + 1]);
      t->destination_weights.push_back(all[e + 2]);
    }
    if (all[e + 1] == of.rank) {
      t->sources.push_back(all[e]);
      t->source_weights.push_back(all[e + 2]);
    }
  }
  *comm_dist_graph = with_graph(of, std::move(t));
}
void MPI_Dist_graph_neighbors_count(MPI_Comm comm, int* indegree, int* outdegree, int* is_weighted) {
  const Topology& t = topology_of(comm, MPI_DIST_GRAPH);
  *indegree = static_cast<int>(t.sources.size());
  *outdegree = static_cast<int>(t.destinations.size());
  *is_weighted = t.weighted;
}
// The order is the one that blocks of neighborhood collectives have.
void MPI_Dist_graph_neighbors(MPI_Comm comm, int maxindegree, int sources[], int* sourceweights, int maxoutdegree,
                              int destinations[], int* destweights) {
  const Topology& t = topology_of(comm, MPI_DIST_GRAPH);
  copy_some(t.sources, maxindegree, sources);
  copy_some(t.destinations, maxoutdegree, destinations);
  if (t.weighted && weighted(sourceweights)) copy_some(t.source_weights, maxindegree, sourceweights);
  if (t.weighted && weighted(destweights)) copy_some(t.destination_weights, maxoutdegree, destweights);
}

}  // namespace rondo_mpi::calls
