#include "mpi/core/world.h"

#include <chrono>
#include <numeric>

#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/predefined.h"

namespace rondo_mpi {
namespace {

// MPI's calls wait for as long as it takes: a rank may compute for days before it answers.
constexpr int64_t kForever = int64_t{30} * 24 * 3600 * 1000;  // the most that Config allows

std::shared_ptr<Comm> named_comm(MPI_Comm handle, const char* name, std::shared_ptr<rondo::Communicator> engine,
                                 std::vector<int> members) {
  auto comm = std::make_shared<Comm>();
  comm->rank = engine->rank();
  comm->engine = std::move(engine);
  comm->members = std::move(members);
  comm->name = name;
  comm->handler = world().fatal;
  world().comms.name(handle, comm);
  return comm;
}

}  // namespace

void Leaving::add(rondo::Communicator* over) {
  std::lock_guard lock(mutex_);
  communicators_.emplace_back(over);
  changed_.notify_all();
  if (!std::exchange(started_, true)) std::thread([this] { run(); }).detach();
}

void Leaving::wait(size_t most) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return communicators_.size() < most; });
}

void Leaving::run() {
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [&] { return !communicators_.empty(); });
    rondo::Communicator& first = *communicators_.front();
    lock.unlock();
    first.destroy();
    lock.lock();
    communicators_.pop_front();
    changed_.notify_all();
  }
}

World& world() {
  static World* made = new World;  // never destroyed: a program may call MPI at its very end
  return *made;
}

World::World() {
  const auto handler = [&](MPI_Errhandler handle, Errhandler::Kind kind) {
    auto made = std::make_shared<Errhandler>();
    made->kind = kind;
    errhandlers.name(handle, made);
    return made;
  };
  fatal = handler(MPI_ERRORS_ARE_FATAL, Errhandler::Kind::kFatal);
  returns = handler(MPI_ERRORS_RETURN, Errhandler::Kind::kReturn);
  handler(MPI_ERRORS_ABORT, Errhandler::Kind::kAbort);
  name_types(types);
  name_ops(ops);
  groups.name(MPI_GROUP_EMPTY, std::make_shared<Group>());
  infos.name(MPI_INFO_ENV, std::make_shared<Info>());
  messages.name(MPI_MESSAGE_NO_PROC, std::make_shared<MatchedMessage>());
}

void open_world() {
  World& w = world();
  std::lock_guard lock(w.mutex);
  require(!w.finalized, MPI_ERR_OTHER, "MPI was finalized: it cannot be started again");
  if (w.users++ > 0) return;
  rondo::JoinOptions options;
  if (options.config.timeout_ms == rondo::Config{}.timeout_ms) options.config.timeout_ms = kForever;
  try {
    w.engine = std::make_shared<rondo::Communicator>(rondo::Communicator::join(options));
    std::vector<int> all(static_cast<size_t>(w.engine->size()));
    std::iota(all.begin(), all.end(), 0);
    named_comm(MPI_COMM_WORLD, "MPI_COMM_WORLD", w.engine, all);
    const int own = w.engine->rank();
    w.self = named_comm(MPI_COMM_SELF, "MPI_COMM_SELF",
                        std::make_shared<rondo::Communicator>(w.engine->new_group(std::span(&own, 1))), {own});
  } catch (...) {
    --w.users;
    throw;
  }
}

void close_world() {
  World& w = world();
  std::lock_guard lock(w.mutex);
  require(w.users > 0, MPI_ERR_OTHER, "MPI is not started");
  if (--w.users > 0) return;
  const std::shared_ptr<Comm> all = w.comms.share(MPI_COMM_WORLD);
  try {
    living(*all).barrier();  // no rank leaves while another may still send to it
  } catch (...) {
    require_failure();
  }
  w.leaving.wait(1);
  if (all->after != nullptr) all->after->destroy();
  w.engine->destroy();
  w.finalized = true;
}

template <typename T>
T& object(const Table<T>& table, typename Table<T>::Handle handle) {
  T* found = table.find(handle);
  if (found == nullptr) [[unlikely]] {
    fail(table.error(),
         handle == table.null() ? "the handle is null" : "the handle is not valid: freed, or of another kind");
  }
  return *found;
}
template Session& object(const Table<Session>&, MPI_Session);
template Request& object(const Table<Request>&, MPI_Request);
template Errhandler& object(const Table<Errhandler>&, MPI_Errhandler);
template MatchedMessage& object(const Table<MatchedMessage>&, MPI_Message);

Comm& comm_of(MPI_Comm comm) { return object(world().comms, comm); }
Comm& intracomm_of(MPI_Comm comm) {
  Comm& found = comm_of(comm);
  require(!found.inter, MPI_ERR_COMM, "this call takes no intercommunicator");
  return found;
}
Group& group_of(MPI_Group group) { return object(world().groups, group); }
Type& type_of(MPI_Datatype type) { return object(world().types, type); }
Type& used_type(MPI_Datatype type) {
  Type& found = type_of(type);
  require(found.committed, MPI_ERR_TYPE, "the datatype was not committed");
  return found;
}
Op& op_of(MPI_Op op) { return object(world().ops, op); }
Info& info_of(MPI_Info info) { return object(world().infos, info); }

}  // namespace rondo_mpi
