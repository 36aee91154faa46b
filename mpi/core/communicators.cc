#include "mpi/core/communicators.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "mpi/core/errors.h"
#include "mpi/core/world.h"

namespace rondo_mpi {
namespace {

constexpr size_t kMostComms = 2048;  // some 30 KiB each: a program that frees none is told soon

// A communicator of ranks of `parent`, made by all of them in the order of the series.
std::shared_ptr<rondo::Communicator> meet(rondo::Communicator& parent, std::span<const int> ranks, uint64_t series) {
  auto [made, opened] = parent.new_group_async(ranks, series);
  auto engine = engine_of(std::move(made));
  if (opened.valid()) opened.wait();
  return engine;
}

int index_of(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

std::shared_ptr<rondo::Communicator> engine_of(rondo::Communicator made) {
  return {new rondo::Communicator(std::move(made)),
          [](rondo::Communicator* over) { world().leaving.add(std::unique_ptr<rondo::Communicator>(over)); }};
}

Number next_number() {
  static std::atomic<uint32_t> numbers{0};
  return {world().engine->rank(), static_cast<int>(numbers.fetch_add(1) % 256)};
}
// Each rank of the world has 256 series of its own from kNumber on.
uint64_t series_of(const Number& number) {
  return static_cast<uint64_t>(Series::kNumber) + (static_cast<uint64_t>(number.world_rank) << 8) +
         static_cast<uint64_t>(number.number);
}
// FNV-1a: the same on all ranks, whatever they were compiled by.
uint64_t series_of(const char* name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; name != nullptr && *name != 0; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100000001b3u;
  return static_cast<uint64_t>(Series::kName) + (hash >> 2);
}

// Members are in the order of `ranks`, which is what MPI says of a new group.
std::shared_ptr<Comm> subset(Comm& parent, const std::vector<int>& ranks, std::optional<uint64_t> series) {
  auto made = std::make_shared<Comm>();
  made->engine = series ? meet(*parent.engine, ranks, *series) : engine_of(parent.engine->new_group(ranks));
  for (const int rank : ranks) made->members.push_back(parent.members[static_cast<size_t>(rank)]);
  made->rank = index_of(ranks, parent.rank);
  made->handler = parent.handler;
  made->session = parent.session;
  return made;
}

// Both groups compare their first ranks in the world, so they order the engine's ranks alike without a message.
std::shared_ptr<Comm> between(const std::shared_ptr<Comm>& local, const std::vector<int>& remote, uint64_t series) {
  auto made = std::make_shared<Comm>();
  made->inter = true;
  made->local = local;
  made->members = local->members;
  made->remote = remote;
  made->rank = local->rank;
  made->handler = local->handler;
  made->session = local->session;
  const bool lower = local->members.front() < remote.front();
  std::vector<int> all = lower ? local->members : remote;
  const std::vector<int>& behind = lower ? remote : local->members;
  (lower ? made->remote_first : made->first) = static_cast<int>(all.size());
  all.insert(all.end(), behind.begin(), behind.end());
  made->engine = meet(*world().engine, all, series);
  return made;
}

// It also ends channels that are over: programs make and free persistent requests in loops.
Channel open_channel(const Comm& comm, std::span<const int> ranks, uint64_t series) {
  world().leaving.look();
  auto [engine, opened] = comm.engine->new_group_async(ranks, series);
  return {engine_of(std::move(engine)), std::move(opened)};
}

Channel open_channel(const Comm& comm, Series series) {
  std::vector<int> all(static_cast<size_t>(comm.engine->size()));
  std::iota(all.begin(), all.end(), 0);
  return open_channel(comm, all, static_cast<uint64_t>(series));
}

std::shared_ptr<Comm> copy_of(const Comm& comm) {
  auto made = std::make_shared<Comm>();
  made->members = comm.members;
  made->remote = comm.remote;
  made->rank = comm.rank;
  made->inter = comm.inter;
  made->first = comm.first;
  made->remote_first = comm.remote_first;
  made->local = comm.local;
  made->handler = comm.handler;
  made->session = comm.session;
  made->topology = comm.topology;
  return made;
}

std::shared_ptr<Comm> duplicate(const Comm& comm) {
  auto made = copy_of(comm);
  made->engine = engine_of(comm.engine->dup());
  return made;
}

std::vector<int> failed(const Comm& comm) {
  const std::optional<rondo::Error> error = comm.engine->error();
  return error && failure_of(*error).code == kProcessFailed ? error->ranks : std::vector<int>{};
}

rondo::Communicator& living(const Comm& comm) { return comm.after == nullptr ? *comm.engine : *comm.after; }

void leave_out_failed(Comm& comm) { comm.after = engine_of(living(comm).shrink()); }

void require_failure() {
  const int code = caught().code;
  if (code != kProcessFailed && code != kCommRevoked) throw;
}

// Ranks learn who lives by an all_gather of their ranks in the world. Where it fails, too, they shrink once more.
std::shared_ptr<Comm> shrunk(Comm& comm) {
  const std::vector<int> own{comm.members[static_cast<size_t>(comm.rank)]};
  if (comm.after == nullptr) leave_out_failed(comm);
  for (;;) {
    try {
      auto made = std::make_shared<Comm>();
      made->members.resize(static_cast<size_t>(comm.after->size()));
      comm.after->all_gather(own, made->members);
      made->engine = engine_of(comm.after->dup());  // a program may shrink the same communicator again
      made->rank = comm.after->rank();
      made->handler = comm.handler;
      made->session = comm.session;
      return made;
    } catch (...) {
      require_failure();
      leave_out_failed(comm);
    }
  }
}

void require_room() {
  if (world().comms.count() < kMostComms) return;
  fail(MPI_ERR_OTHER, "this process has " + std::to_string(kMostComms) + " communicators, the most: free some");
}

MPI_Comm publish(const std::shared_ptr<Comm>& comm) {
  if (comm == nullptr) return MPI_COMM_NULL;
  require_room();
  return world().comms.add(comm);
}

MPI_Group publish_group(std::vector<int> ranks, const std::shared_ptr<Session>& session) {
  if (ranks.empty()) return MPI_GROUP_EMPTY;
  auto group = std::make_shared<Group>();
  group->ranks = std::move(ranks);
  group->session = session;
  return world().groups.add(std::move(group));
}

}  // namespace rondo_mpi
