// Communicators and groups. Calls that make a communicator are collective: ranks agree whether all can make it
// (agreement.h). The handle shares what it names with the calls and requests that use it, so MPI_Comm_free() returns at
// once, and what is under way goes on.

#include "mpi/core/communicators.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "mpi/core/agreement.h"
#include "mpi/core/attributes.h"
#include "mpi/core/errors.h"
#include "mpi/core/request.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// The place of a rank in a list; MPI_UNDEFINED: it has none.
int place(const std::vector<int>& ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? MPI_UNDEFINED : static_cast<int>(found - ranks.begin());
}

// MPI_IDENT: the same order; MPI_SIMILAR: the same ranks.
int compare(const std::vector<int>& a, const std::vector<int>& b) {
  if (a == b) return MPI_IDENT;
  return std::is_permutation(a.begin(), a.end(), b.begin(), b.end()) ? MPI_SIMILAR : MPI_UNEQUAL;
}

// Ranks of the communicator that a group names.
std::vector<int> ranks_in(const Comm& comm, const Group& group) {
  std::vector<int> ranks;
  for (const int rank : group.ranks) {
    const int found = place(comm.members, rank);
    require(found != MPI_UNDEFINED, MPI_ERR_GROUP, "the group has ranks that are not in the communicator");
    ranks.push_back(found);
  }
  return ranks;
}

// What each rank of both groups of an intercommunicator, or of all, says before one is made of it; by engine's rank.
// Sent as it lies in memory, among ranks of one build.
struct Choice {
  int color, key;
  Number number;    // that of the engine's first rank counts
  int64_t verdict;  // Verdict::word()
};
// choose(own): sets the own color and key, or refuses the call. All throw if one refuses. In an intercommunicator both
// groups take part, by its engine.
template <typename Choose>
std::vector<Choice> all_choices(Comm& comm, const Choose& choose) {
  Choice own{0, 0, next_number(), 0};
  const Verdict verdict(comm, [&] {
    require_room();
    choose(own);
  });
  own.verdict = verdict.word();
  std::vector<Choice> all(static_cast<size_t>(comm.engine->size()));
  comm.engine->all_gather(&own, all.data(), sizeof own, rondo::DType::kUint8);
  int64_t largest = 0;
  for (const Choice& choice : all) largest = std::max(largest, choice.verdict);
  verdict.settle(largest);
  return all;
}
// Those of `count` ranks from `first` on that have the color, ordered by key; counted from `first`. Equal keys keep the
// order of the ranks, as MPI_Comm_split() says.
std::vector<int> chosen(const std::vector<Choice>& all, int first, size_t count, int color) {
  std::vector<int> ranks;
  const auto of = [&](int r) -> const Choice& { return all[static_cast<size_t>(first + r)]; };
  for (int r = 0; r < static_cast<int>(count); ++r) {
    if (of(r).color == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return of(a).key < of(b).key; });
  return ranks;
}

// nullptr: MPI_COMM_NULL. In an intercommunicator ranks of one color of both groups form a new one; a color that only
// one group has gives none.
template <typename Choose>
std::shared_ptr<Comm> split(Comm& comm, const Choose& choose) {
  constexpr int kNone = -1;
  const std::vector<Choice> all = all_choices(comm, [&](Choice& own) {
    choose(own);
    if (own.color == MPI_UNDEFINED) {
      own.color = kNone;
    } else if (own.color < 0) {
      fail(MPI_ERR_ARG, "the color is " + std::to_string(own.color) + ", negative");
    }
  });
  const int own = all[static_cast<size_t>(comm.engine->rank())].color;
  if (own == kNone) return nullptr;
  const std::vector<int> local = chosen(all, comm.first, comm.members.size(), own);
  if (!comm.inter) return subset(comm, local);
  std::vector<int> remote;
  for (const int r : chosen(all, comm.remote_first, comm.remote.size(), own)) {
    remote.push_back(comm.remote[static_cast<size_t>(r)]);
  }
  // All ranks take the number of the engine's first rank, so subgroups meet in a series that no other call uses at that
  // time.
  const uint64_t series = series_of(all[0].number);
  std::shared_ptr<Comm> group = subset(*comm.local, local, series);
  return remote.empty() ? nullptr : between(group, remote, series);
}

// Copies what MPI_Comm_dup() copies: hints and attributes. info: hints of the new one; none: those of `comm`. Runs the
// copy functions of the attributes: their failure is a refusal that all ranks hear of. Where the call fails, the copies
// are deleted again (drop_attributes).
void describe(Comm& made, Comm& comm, std::optional<MPI_Info> info) {
  require_room();
  if (info) {
    take_hints(made.info, hints_of(*info), kCommHints);
  } else {
    made.info.entries = comm.info.entries;
  }
  copy_attributes(comm.handle, comm.attributes, made.attributes);
}

// Ranks agree before they make it, so an error of one leaves no half of a communicator.
MPI_Comm dup(Comm& comm, std::optional<MPI_Info> info = std::nullopt) {
  const std::shared_ptr<Comm> made = copy_of(comm);
  try {
    agree(comm, [&] { describe(*made, comm, info); });
    made->engine = engine_of(comm.engine->dup());
    return publish(made);
  } catch (...) {
    drop_attributes(comm.handle, made->attributes);
    throw;
  }
}

// An error is the request's, as in MPICH: the other ranks have begun, and hear of it in the new communicator. The new
// communicator may be used after the request is over. The request shares it, the verdict and the word until then.
MPI_Request start_dup(Comm& comm, MPI_Comm* newcomm, std::optional<MPI_Info> info = std::nullopt) {
  *newcomm = MPI_COMM_NULL;
  const std::shared_ptr<Comm> made = copy_of(comm);
  made->engine = open_channel(comm, Series::kIdup).engine;
  const auto verdict = std::make_shared<const Verdict>(*made, [&] {
    try {
      describe(*made, comm, info);
      *newcomm = publish(made);
    } catch (...) {
      drop_attributes(comm.handle, made->attributes);
      throw;
    }
  });
  const auto largest = std::make_shared<int64_t>(verdict->word());
  auto request = make_request(Request::Kind::kCollective, comm.shared_from_this());
  request->work = made->engine->start({.collective = rondo::Collective::kAllReduce,
                                       .input = largest.get(),
                                       .output = largest.get(),
                                       .count = 1,
                                       .dtype = rondo::DType::kInt64,
                                       .op = rondo::Op::kMax});
  request->finish = [made, verdict, largest] { verdict->settle(*largest); };
  return add_request(std::move(request));
}

// The delete functions run first: one that refuses keeps the communicator. MPI calls this collective, but no rank is
// waited for: what is pending keeps its share.
void free_comm(MPI_Comm* comm) {
  Comm& of = comm_of(*comm);
  require(!world().comms.predefined(*comm), MPI_ERR_COMM, "a predefined communicator cannot be freed");
  delete_attributes(*comm, of.attributes);
  world().comms.remove(*comm);
  *comm = MPI_COMM_NULL;
  world().leaving.look();
}

}  // namespace

void MPI_Comm_size(MPI_Comm comm, int* size) { *size = comm_of(comm).size(); }
void MPI_Comm_rank(MPI_Comm comm, int* rank) { *rank = comm_of(comm).rank; }
void MPI_Comm_remote_size(MPI_Comm comm, int* size) {
  require(comm_of(comm).inter, MPI_ERR_COMM, "the communicator is no intercommunicator");
  *size = comm_of(comm).peers();
}
void MPI_Comm_test_inter(MPI_Comm comm, int* flag) { *flag = comm_of(comm).inter; }
// A copy of the ranks: the group outlives the communicator.
void MPI_Comm_group(MPI_Comm comm, MPI_Group* group) {
  *group = publish_group(comm_of(comm).members, comm_of(comm).session);
}
void MPI_Comm_remote_group(MPI_Comm comm, MPI_Group* group) {
  require(comm_of(comm).inter, MPI_ERR_COMM, "the communicator is no intercommunicator");
  *group = publish_group(comm_of(comm).remote, comm_of(comm).session);
}
// MPI_CONGRUENT: the same ranks in the same order, but not the same communicator.
void MPI_Comm_compare(MPI_Comm comm1, MPI_Comm comm2, int* result) {
  const Comm &a = comm_of(comm1), &b = comm_of(comm2);
  if (&a == &b) {
    *result = MPI_IDENT;
  } else if (a.inter != b.inter) {
    *result = MPI_UNEQUAL;
  } else {
    const int members = compare(a.members, b.members), remote = compare(a.remote, b.remote);
    *result = members == MPI_UNEQUAL || remote == MPI_UNEQUAL ? MPI_UNEQUAL
              : members == MPI_IDENT && remote == MPI_IDENT   ? MPI_CONGRUENT
                                                              : MPI_SIMILAR;
  }
}

// Collective. Topology, error handler and hints go along, attributes as their copy functions say, and the name does
// not.
void MPI_Comm_dup(MPI_Comm comm, MPI_Comm* newcomm) {
  *newcomm = MPI_COMM_NULL;  // also after an error
  *newcomm = dup(comm_of(comm));
}
void MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm) {
  *newcomm = MPI_COMM_NULL;
  *newcomm = dup(comm_of(comm), info);
}
// *newcomm is set at once. It may be used when the request is over.
void MPI_Comm_idup(MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request) {
  *request = start_dup(comm_of(comm), newcomm);
}
void MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm, MPI_Request* request) {
  *request = start_dup(comm_of(comm), newcomm, info);
}
// Each color forms a communicator of its ranks by key; MPI_UNDEFINED gives MPI_COMM_NULL.
void MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  *newcomm = publish(split(comm_of(comm), [&](Choice& own) { own.color = color, own.key = key; }));
}
namespace {
// The first rank of the engine that shares memory with this one, or this one. So ranks that MPI_Win_allocate_shared()
// serves have one color, also in both groups of an intercommunicator.
int color_of_memory(const Comm& comm) {
  const rondo::Topology topology = comm.engine->topology();
  const int own = comm.first + comm.rank;
  int first = 0;
  while (first < own && !topology.share_memory(first, own)) ++first;
  return first;
}
}  // namespace
// Collective. All ranks give one kind, or MPI_UNDEFINED.
void MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm* newcomm) {
  Comm& of = comm_of(comm);
  *newcomm = publish(split(of, [&](Choice& own) {
    const bool guided = split_type == MPI_COMM_TYPE_HW_GUIDED || split_type == MPI_COMM_TYPE_RESOURCE_GUIDED;
    require(guided || split_type == MPI_COMM_TYPE_SHARED || split_type == MPI_UNDEFINED ||
                split_type == MPI_COMM_TYPE_HW_UNGUIDED,
            MPI_ERR_ARG, "the kind of split is not known");
    const std::pair<std::string, std::string> memory{"mpi_hw_resource_type", "mpi_shared_memory"};
    const Info::Entries hints = guided ? hints_of(info) : Info::Entries{};
    const bool shared =
        split_type == MPI_COMM_TYPE_SHARED || std::find(hints.begin(), hints.end(), memory) != hints.end();
    // Rondo knows no smaller parts of a host, so a split by them gives no communicator.
    own.color = shared ? color_of_memory(of) : MPI_UNDEFINED;
    own.key = key;
  }));
}
// Called by all ranks of the communicator, also those outside of the group.
void MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* newcomm) {
  Comm& of = comm_of(comm);
  if (of.inter) {  // a split whose keys are the places in the groups
    *newcomm = publish(split(of, [&](Choice& own) {
      own.key = place(ranks_in(of, group_of(group)), of.rank);
      own.color = own.key == MPI_UNDEFINED ? MPI_UNDEFINED : 0;
    }));
  } else {
    std::vector<int> ranks;
    agree(of, [&] {
      require_room();
      ranks = ranks_in(of, group_of(group));
    });
    *newcomm = publish(place(ranks, of.rank) == MPI_UNDEFINED ? nullptr : subset(of, ranks));
  }
}
// Called by the members of the group alone. A tag has its own series, so several threads may make groups at once.
void MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm) {
  Comm& of = intracomm_of(comm);
  require(tag >= 0, MPI_ERR_TAG, "the tag is negative");
  const std::vector<int> ranks = ranks_in(of, group_of(group));
  const uint64_t series = static_cast<uint64_t>(Series::kGroup) + static_cast<uint64_t>(tag);
  std::shared_ptr<Comm> made;
  if (place(ranks, of.rank) != MPI_UNDEFINED) {
    made = subset(of, ranks, series);
    agree(*made, [] { require_room(); });
  }
  *newcomm = publish(made);
}
// Requests may be under way: they share the communicator.
int MPI_Comm_free(MPI_Comm* comm) {
  return on(*comm, __func__, [&] { free_comm(comm); });
}
// The program has completed its own requests before, as MPI demands, so there is nothing to wait for.
int MPI_Comm_disconnect(MPI_Comm* comm) {
  return on(*comm, __func__, [&] { free_comm(comm); });
}
void MPI_Comm_get_parent(MPI_Comm* parent) {
  *parent = MPI_COMM_NULL;  // no process was spawned
}

// --- Intercommunicators

namespace {

// The communicator in which a leader meets the other one. A share: the leader waits in it.
std::shared_ptr<Comm> peer_of(MPI_Comm comm, int remote_leader) {
  require(remote_leader >= 0 && remote_leader < comm_of(comm).peers(), MPI_ERR_RANK,
          "the remote leader is not in the communicator");
  return shared_comm(comm);
}

// What a leader tells the other one, and then its group.
struct Told {
  int length;
  Number number;
  int code;  // the error that its group ends with, or MPI_SUCCESS
};
// Called by a leader: the other group's ranks, and the number that both groups take. code: of the own group. The two
// leaders exchange their sizes first, then the groups: two messages each way, with the tag of the call. Both take the
// number of the leader with the lower rank in the world.
Told swap_groups(const Comm& local, Comm& peer, int remote_leader, int tag, int code, std::vector<int>& remote) {
  const auto swap = [&](const void* out, size_t sent, void* in, size_t received) {
    const int to = peer.engine_rank(remote_leader);
    peer.engine->sendrecv(out, sent, to, in, received, to, rondo::DType::kUint8, tag);
  };
  const Told own{local.size(), next_number(), code};
  Told told{};
  swap(&own, sizeof own, &told, sizeof told);
  if (code != MPI_SUCCESS || told.code != MPI_SUCCESS) return told;
  remote.resize(static_cast<size_t>(told.length));
  swap(local.members.data(), local.members.size() * sizeof(int), remote.data(), remote.size() * sizeof(int));
  if (own.number.world_rank < told.number.world_rank) told.number = own.number;
  return told;
}

}  // namespace

// The peer communicator and the remote leader count on the leaders alone.
void MPI_Intercomm_create(MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm, int remote_leader, int tag,
                          MPI_Comm* newintercomm) {
  Comm& local = intracomm_of(local_comm);
  std::shared_ptr<Comm> peer;  // of the leader alone
  const Verdict verdict(local, [&] {
    require(local_leader >= 0 && local_leader < local.size(), MPI_ERR_RANK, "the leader is not in the communicator");
    if (local.rank == local_leader) peer = peer_of(peer_comm, remote_leader);
    require_room();
  });
  const int64_t largest = verdict.exchange();
  std::vector<int> remote;
  Told told{};
  Failure failure{MPI_SUCCESS, "the other group, or the leader of this rank's, has failed in this call", true};
  if (peer != nullptr) {
    try {  // also after a refusal: the other group waits for what this one says
      told = swap_groups(local, *peer, remote_leader, tag, Verdict::code_of(largest), remote);
    } catch (...) {
      failure = caught();
      told.code = failure.code;
    }
  }
  verdict.settle(largest);
  local.engine->broadcast(&told, sizeof told, rondo::DType::kUint8, local_leader);
  if (told.code != MPI_SUCCESS) throw Failure{told.code, failure.text, failure.of_another};
  remote.resize(static_cast<size_t>(told.length));
  local.engine->broadcast(remote, local_leader);
  const bool disjoint =
      std::none_of(remote.begin(), remote.end(), [&](int rank) { return place(local.members, rank) != MPI_UNDEFINED; });
  require(disjoint, MPI_ERR_COMM, "the groups of an intercommunicator must not overlap");
  *newintercomm = publish(between(local.shared_from_this(), remote, series_of(told.number)));
}
// The group that says low comes first. Where both say the same, it is the one that the engine has first: the same on
// all ranks. All ranks of a group must say the same.
void MPI_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm* newintracomm) {
  Comm& of = comm_of(intercomm);
  require(of.inter, MPI_ERR_COMM, "the communicator is no intercommunicator");
  const std::vector<Choice> all = all_choices(of, [&](Choice& own) { own.color = high != 0; });
  const bool own_high = high != 0, other_high = all[static_cast<size_t>(of.remote_first)].color != 0;
  const bool own_first = own_high == other_high ? of.first == 0 : !own_high;
  std::vector<int> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  if (own_first != (of.first == 0)) {
    const size_t lower = of.first == 0 ? of.members.size() : of.remote.size();
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(lower), order.end());
  }
  auto made = std::make_shared<Comm>();
  made->members = own_first ? of.members : of.remote;
  const std::vector<int>& behind = own_first ? of.remote : of.members;
  made->members.insert(made->members.end(), behind.begin(), behind.end());
  made->engine = engine_of(of.engine->new_group(order));
  made->rank = made->engine->rank();
  made->handler = of.handler;
  made->session = of.session;
  *newintracomm = publish(made);
}

// --- Groups

namespace {

// MPI takes no rank twice.
std::vector<int> listed(const Group& group, int n, const int ranks[]) {
  require(n >= 0, MPI_ERR_ARG, "the number of ranks is negative");
  require(n == 0 || ranks != nullptr, MPI_ERR_ARG, "the ranks are null");
  std::set<int> seen;
  std::vector<int> made;
  for (int i = 0; i < n; ++i) {
    require(ranks[i] >= 0 && static_cast<size_t>(ranks[i]) < group.ranks.size() && seen.insert(ranks[i]).second,
            MPI_ERR_RANK, "a rank is not in the group, or is given twice");
    made.push_back(ranks[i]);
  }
  return made;
}
// The number of ranks is bounded by the group's size, so a range of 2^31 ranks ends early.
std::vector<int> ranged(const Group& group, int n, int ranges[][3]) {
  require(n <= 0 || ranges != nullptr, MPI_ERR_ARG, "the ranges are null");
  std::vector<int> made;
  for (int i = 0; i < n; ++i) {
    const auto [first, last, stride] = std::tuple(ranges[i][0], ranges[i][1], ranges[i][2]);
    require(stride != 0, MPI_ERR_ARG, "a stride is 0");
    for (int64_t rank = first; stride > 0 ? rank <= last : rank >= last; rank += stride) {
      require(made.size() < group.ranks.size(), MPI_ERR_RANK, "the ranges have more ranks than the group");
      made.push_back(static_cast<int>(rank));
    }
  }
  return made;
}
// The ranks in the order of the list.
MPI_Group included(const Group& group, const std::vector<int>& ranks) {
  std::vector<int> made;
  for (const int rank : listed(group, static_cast<int>(ranks.size()), ranks.data())) {
    made.push_back(group.ranks[static_cast<size_t>(rank)]);
  }
  return publish_group(made, group.session);
}
// The ranks in the order of the group.
MPI_Group excluded(const Group& group, const std::vector<int>& ranks) {
  listed(group, static_cast<int>(ranks.size()), ranks.data());
  std::vector<int> made;
  for (int rank = 0; rank < static_cast<int>(group.ranks.size()); ++rank) {
    if (place(ranks, rank) == MPI_UNDEFINED) made.push_back(group.ranks[static_cast<size_t>(rank)]);
  }
  return publish_group(made, group.session);
}
// The ranks of `a` that are in `b`, or are not. The order is that of `a`, as MPI says of intersections and differences.
std::vector<int> those(const Group& a, const Group& b, bool in) {
  std::vector<int> made;
  for (const int rank : a.ranks) {
    if ((place(b.ranks, rank) != MPI_UNDEFINED) == in) made.push_back(rank);
  }
  return made;
}

}  // namespace

void MPI_Group_size(MPI_Group group, int* size) { *size = static_cast<int>(group_of(group).ranks.size()); }
void MPI_Group_rank(MPI_Group group, int* rank) {
  require(world().engine != nullptr, MPI_ERR_OTHER, "MPI is not started");
  *rank = place(group_of(group).ranks, world().engine->rank());
}
// MPI_UNDEFINED for a rank that the second group lacks.
void MPI_Group_translate_ranks(MPI_Group group1, int n, const int ranks1[], MPI_Group group2, int ranks2[]) {
  const Group &a = group_of(group1), &b = group_of(group2);
  require(n <= 0 || (ranks1 != nullptr && ranks2 != nullptr), MPI_ERR_ARG, "the ranks are null");
  for (int i = 0; i < n; ++i) {
    if (ranks1[i] == MPI_PROC_NULL) {
      ranks2[i] = MPI_PROC_NULL;
      continue;
    }
    require(ranks1[i] >= 0 && static_cast<size_t>(ranks1[i]) < a.ranks.size(), MPI_ERR_RANK,
            "a rank is not in the group");
    ranks2[i] = place(b.ranks, a.ranks[static_cast<size_t>(ranks1[i])]);
  }
}
void MPI_Group_compare(MPI_Group group1, MPI_Group group2, int* result) {
  *result = compare(group_of(group1).ranks, group_of(group2).ranks);
}
// The ranks of the first group, then those that the second has besides.
void MPI_Group_union(MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  std::vector<int> made = group_of(group1).ranks;
  const std::vector<int> more = those(group_of(group2), group_of(group1), false);
  made.insert(made.end(), more.begin(), more.end());
  *newgroup = publish_group(made, group_of(group1).session);
}
void MPI_Group_intersection(MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  *newgroup = publish_group(those(group_of(group1), group_of(group2), true), group_of(group1).session);
}
void MPI_Group_difference(MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  *newgroup = publish_group(those(group_of(group1), group_of(group2), false), group_of(group1).session);
}
void MPI_Group_incl(MPI_Group group, int n, const int ranks[], MPI_Group* newgroup) {
  *newgroup = included(group_of(group), listed(group_of(group), n, ranks));
}
void MPI_Group_excl(MPI_Group group, int n, const int ranks[], MPI_Group* newgroup) {
  *newgroup = excluded(group_of(group), listed(group_of(group), n, ranks));
}
void MPI_Group_range_incl(MPI_Group group, int n, int ranges[][3], MPI_Group* newgroup) {
  *newgroup = included(group_of(group), ranged(group_of(group), n, ranges));
}
void MPI_Group_range_excl(MPI_Group group, int n, int ranges[][3], MPI_Group* newgroup) {
  *newgroup = excluded(group_of(group), ranged(group_of(group), n, ranges));
}
// MPI_GROUP_EMPTY stays.
void MPI_Group_free(MPI_Group* group) {
  group_of(*group);
  if (!world().groups.predefined(*group)) world().groups.remove(*group);
  *group = MPI_GROUP_NULL;
}

}  // namespace rondo_mpi::calls
