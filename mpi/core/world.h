#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "mpi/core/file.h"
#include "mpi/core/objects.h"
#include "mpi/core/predefined.h"
#include "mpi/core/window.h"

namespace rondo_mpi {

// MPI's calls wait for as long as it takes: a rank may compute for days before it answers. 30 days are the most that
// Config allows.
inline constexpr std::chrono::milliseconds kForever{int64_t{30} * 24 * 3600 * 1000};

// Communicators of the engine that this rank has freed, and other ranks have not: MPI_Comm_free() waits for no rank.
// Calls that make or free communicators end those that all ranks have left.
class Leaving {
 public:
  // Takes it, and says goodbye. Any thread, also one of the engine. It does not wait.
  void add(std::unique_ptr<rondo::Communicator> over);
  // Looks at the `most` communicators that were looked at longest ago, and ends those that all other ranks have left.
  void look(size_t most = kFew);
  // Waits until all others have left, but no longer than so.
  void wait(std::chrono::milliseconds limit);

 private:
  // A bound for the cost of one MPI_Comm_free(): each look makes one try_destroy().
  static constexpr size_t kFew = 8;
  size_t count();
  std::unique_ptr<rondo::Communicator> next();

  std::mutex mutex_;
  std::deque<std::unique_ptr<rondo::Communicator>> communicators_;
};

// All of a process that calls MPI: the tables of handles, and the world. One of it, made by the first call of any
// function and never destroyed, as MPI's functions have no other place for it.
struct World {
  World();

  Table<Comm> comms{MPI_COMM_NULL, MPI_ERR_COMM};
  Table<Group> groups{MPI_GROUP_NULL, MPI_ERR_GROUP};
  Table<Type> types{MPI_DATATYPE_NULL, MPI_ERR_TYPE};
  Table<Op> ops{MPI_OP_NULL, MPI_ERR_OP};
  Table<Request> requests{MPI_REQUEST_NULL, MPI_ERR_REQUEST};
  Table<MatchedMessage> messages{MPI_MESSAGE_NULL, MPI_ERR_REQUEST};
  Table<Errhandler> errhandlers{MPI_ERRHANDLER_NULL, MPI_ERR_ERRHANDLER};
  Table<Info> infos{MPI_INFO_NULL, MPI_ERR_INFO};
  Table<Session> sessions{MPI_SESSION_NULL, MPI_ERR_SESSION};
  Table<File> files{MPI_FILE_NULL, MPI_ERR_FILE};
  Table<Window> windows{MPI_WIN_NULL, MPI_ERR_WIN};
  // These are read without a lock: nothing changes them after the constructor.
  NamedTypes named_types;
  NamedOps named_ops;

  // `users`: how many calls of MPI_Init and MPI_Session_init have not been finalized. The mutex guards `users`, and is
  // held while the world is opened or closed: a second MPI_Session_init() waits for that.
  std::mutex mutex;
  int users = 0;
  // These tell of MPI_Init() and MPI_Finalize() alone, not of sessions; neither becomes false again.
  std::atomic<bool> initialized{false}, finalized{false};
  int thread_level = MPI_THREAD_SINGLE;  // this and main_thread: set before `initialized`
  std::thread::id main_thread;
  std::shared_ptr<rondo::Communicator> engine;  // of all ranks; null before open_world(), kept after close_world()
  Leaving leaving;
  std::shared_ptr<Comm> self;  // gets the errors that belong to no communicator
  std::shared_ptr<Errhandler> fatal, returns;
  Handler file_handler;  // of a file that is opened, and of errors that belong to none
  Buffer buffer;         // that of MPI_Buffer_attach()
};

// Two threads may come first: the initialization of a local static excludes them.
World& make_world();
extern std::atomic<World*> made_world;
inline World& world() {
  World* const made = made_world.load(std::memory_order_acquire);
  return made != nullptr ? *made : make_world();
}

// Joins the job and makes the predefined communicators, or counts one more user of them.
void open_world();
// The last user leaves the job.
void close_world();

// The object of a handle; throws the kind's error class for a wrong one. Those that a call may have while it waits are
// shared, or held by it (errors.h): another thread may free the handle then, and the call goes on.
template <typename T>
T& object(const Table<T>& table, typename Table<T>::Handle handle);
Comm& comm_of(MPI_Comm comm);
// A communicator of one group; MPI_ERR_COMM for an intercommunicator.
Comm& intracomm_of(MPI_Comm comm);
Group& group_of(MPI_Group group);
Type& type_of(MPI_Datatype type);
// One that may be in a message: MPI_ERR_TYPE for one that was not committed.
std::shared_ptr<Type> used_type(MPI_Datatype type);
// MPI_ERR_COUNT for a negative count, and for more bytes than 64 bits hold.
Data data_of(const void* at, MPI_Count count, MPI_Datatype type);
std::shared_ptr<Op> op_of(MPI_Op op);
Info& info_of(MPI_Info info);

}  // namespace rondo_mpi
