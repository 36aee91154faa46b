#include "mpi/core/world.h"

#include <chrono>
#include <numeric>

#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/file.h"
#include "mpi/core/window.h"

namespace rondo_mpi {
namespace {

// Makes a communicator that the ABI names. members: ranks of the world.
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

// The first try_destroy() says goodbye, and each one sees whether all others have said it, too.
void Leaving::add(std::unique_ptr<rondo::Communicator> over) {
  if (over->try_destroy()) return;
  std::lock_guard lock(mutex_);
  communicators_.push_back(std::move(over));
}

std::unique_ptr<rondo::Communicator> Leaving::next() {
  std::lock_guard lock(mutex_);
  if (communicators_.empty()) return nullptr;
  auto first = std::move(communicators_.front());
  communicators_.pop_front();
  return first;
}

// What has not ended goes to the back of the queue, so all get their turn.
void Leaving::look(size_t most) {
  for (size_t i = 0; i < most; ++i) {
    auto one = next();
    if (one == nullptr) return;
    add(std::move(one));
  }
}

size_t Leaving::count() {
  std::lock_guard lock(mutex_);
  return communicators_.size();
}

// Looks at all in turn. A destroy() of one would wait there for the other ranks, and one of them may wait for this
// rank's goodbye to another communicator, which comes only after the opening of that one.
void Leaving::wait(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (count() > 0 && std::chrono::steady_clock::now() < until) {
    look(count());
    if (count() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  while (auto one = next()) one->destroy();
}

std::atomic<World*> made_world{nullptr};

World& make_world() {
  static World* made = new World;  // never destroyed: a program may call MPI at its very end
  made_world.store(made, std::memory_order_release);
  return *made;
}

// Named handles but for communicators are there before MPI_Init(): MPI allows calls with infos and error handlers then.
World::World() {
  const auto handler = [&](MPI_Errhandler handle, Errhandler::Kind kind) {
    auto made = std::make_shared<Errhandler>();
    made->kind = kind;
    errhandlers.name(handle, made);
    return made;
  };
  fatal = handler(MPI_ERRORS_ARE_FATAL, Errhandler::Kind::kFatal);
  returns = handler(MPI_ERRORS_RETURN, Errhandler::Kind::kReturn);
  file_handler = returns;
  handler(MPI_ERRORS_ABORT, Errhandler::Kind::kAbort);
  named_types = name_types(types);
  named_ops = name_ops(ops);
  groups.name(MPI_GROUP_EMPTY, std::make_shared<Group>());
  infos.name(MPI_INFO_ENV, std::make_shared<Info>());
  messages.name(MPI_MESSAGE_NO_PROC, std::make_shared<MatchedMessage>());
}

// MPI_Init and every session are users of one world: the first opens it, the last closes it. A failed join leaves no
// user counted.
void open_world() {
  World& w = world();
  std::lock_guard lock(w.mutex);
  if (w.users++ > 0) return;
  rondo::JoinOptions options;
  if (options.config.timeout_ms == rondo::Config{}.timeout_ms) options.config.timeout_ms = kForever.count();
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

// The barrier is what makes MPI_Finalize() collective. A failed rank does not keep those that live from ending:
// living() is the communicator without it, if they have agreed on that.
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
  // These hold communicators that the program has freed, which must say goodbye before the engine does.
  w.buffer.sent.clear();  // has communicators that were freed
  w.leaving.wait(std::chrono::milliseconds(w.engine->config().destroy_timeout_ms));
  if (all->after != nullptr) all->after->destroy();
  w.engine->destroy();
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
template File& object(const Table<File>&, MPI_File);
template Window& object(const Table<Window>&, MPI_Win);

namespace {

// The same, for a caller that keeps it.
template <typename T>
std::shared_ptr<T> shared(const Table<T>& table, typename Table<T>::Handle handle) {
  auto found = table.share(handle);
  if (found == nullptr) [[unlikely]]
    object(table, handle);  // says why
  return found;
}

}  // namespace

Comm& comm_of(MPI_Comm comm) { return object(world().comms, comm); }
Comm& intracomm_of(MPI_Comm comm) {
  Comm& found = comm_of(comm);
  require(!found.inter, MPI_ERR_COMM, "this call takes no intercommunicator");
  return found;
}
Group& group_of(MPI_Group group) { return object(world().groups, group); }
Type& type_of(MPI_Datatype type) { return object(world().types, type); }
std::shared_ptr<Type> used_type(MPI_Datatype type) {
  auto found = shared(world().types, type);
  require(found->committed, MPI_ERR_TYPE, "the datatype was not committed");
  return found;
}
Data data_of(const void* at, MPI_Count count, MPI_Datatype type) {
  require(count >= 0, MPI_ERR_COUNT, "the count is negative");
  const Data made{const_cast<void*>(at), count, used_type(type)};
  product(count, made.type->size);
  return made;
}
std::shared_ptr<Op> op_of(MPI_Op op) { return shared(world().ops, op); }
Info& info_of(MPI_Info info) { return object(world().infos, info); }

}  // namespace rondo_mpi
