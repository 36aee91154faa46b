#include "mpi/core/errors.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "mpi/core/communicators.h"
#include "mpi/core/file.h"
#include "mpi/core/window.h"
#include "mpi/core/world.h"

namespace rondo_mpi {
namespace {

// What MPI_Error_string() says of the last failure of this thread: more than its class.
thread_local Failure last{MPI_SUCCESS, ""};

}  // namespace

const Failure& last_failure() { return last; }
int remember(Failure failure) {
  last = std::move(failure);
  return last.code;
}

void fail(int code, const std::string& text) { throw Failure{code, text}; }
void refuse_one_more_handle(size_t most) {
  fail(MPI_ERR_OTHER, "this process has " + std::to_string(most) + " handles of this kind, the most: free some");
}
void refuse_result(int code) { fail(code, "a count, a length or a displacement is too large: 64 bits do not hold it"); }

std::string who() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const auto& engine = world().engine;
  const int rank = engine == nullptr ? -1 : engine->place().rank;
  return (rank < 0 ? "a process" : "rank " + std::to_string(rank)) + " on " + host + " (pid " +
         std::to_string(getpid()) + ")";
}

// Codes of the engine as classes of MPI. A peer's death, goodbye and silence are one class: programs that recover treat
// them alike.
Failure failure_of(const rondo::Error& error) {
  switch (error.code) {
    case rondo::ErrorCode::kTruncated:
      return {MPI_ERR_TRUNCATE, error.message};
    case rondo::ErrorCode::kPeerLost:
    case rondo::ErrorCode::kPeerLeft:
    case rondo::ErrorCode::kUnresponsive:
      return {kProcessFailed, error.message};
    case rondo::ErrorCode::kAborted:
      return {error.message.find(kRevoked) == std::string::npos ? MPI_ERR_PROC_ABORTED : kCommRevoked, error.message};
    case rondo::ErrorCode::kClosed:
      return {kCommRevoked, error.message};  // the others went on without the failed ranks
    case rondo::ErrorCode::kUnsupported:
      return {MPI_ERR_UNSUPPORTED_OPERATION, error.message};
    case rondo::ErrorCode::kInternal:
      return {MPI_ERR_INTERN, error.message};
    default:
      return {MPI_ERR_OTHER, error.message};
  }
}

// Other exceptions of a program's function pass: nothing here knows what they say.
Failure caught() {
  try {
    throw;
  } catch (const Failure& failure) {
    return failure;
  } catch (const rondo::Exception& exception) {
    return failure_of(exception.error());
  } catch (const std::bad_alloc&) {
    return {MPI_ERR_NO_MEM, "no memory"};
  } catch (const std::exception& exception) {
    return {MPI_ERR_INTERN, exception.what()};
  }
}

// _exit(): other threads may be in calls, and functions of atexit() may wait for ranks that are gone. First the
// engine's abort tells the other ranks the reason; else they would report a lost process, or wait for this one where
// fflush() waits: for a thread that reads from a terminal, say.
void end_job(const std::string& sentence, int code) {
  std::fprintf(stderr, "rondo-mpi: %s\n", sentence.c_str());
  try {
    if (world().engine != nullptr) world().engine->abort(sentence);
  } catch (const rondo::Exception&) {
    // It is over already.
  }
  std::fflush(nullptr);
  const int status = code & 0xff;  // what the system keeps of it
  _exit(status == 0 ? 1 : status);
}

// The one place where a failure meets an error handler.
int report_to(const char* call, Errhandler& handler, uintptr_t object, const Failure& failure) {
  remember(failure);
  std::string name = call;
  if (name.ends_with("_c")) name.resize(name.size() - 2);  // which the form without _c may have called
  switch (handler.kind) {
    case Errhandler::Kind::kFatal:
    case Errhandler::Kind::kAbort:
      // A launcher takes the job's code from the first process that ends, and may end the others before they have said
      // why. It must be the one whose end or failure this rank has heard of.
      if (failure.code == kProcessFailed || failure.code == MPI_ERR_PROC_ABORTED || failure.of_another) {
        // 0.2 s: that process has printed its sentence and ended by then.
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
      end_job(who() + ": " + name + ": " + failure.text + " (" + std::to_string(failure.code) + ")", failure.code);
    case Errhandler::Kind::kFunction: {
      int code = failure.code;
      handler.function(reinterpret_cast<MPI_Comm*>(&object), &code);  // whose first bytes are the handle
      return code;
    }
    case Errhandler::Kind::kReturn:
      break;
  }
  return failure.code;
}

std::shared_ptr<Comm> shared_comm(MPI_Comm comm) { return world().comms.share(comm); }

int report(const char* call, MPI_Comm comm, const Failure& failure) {
  return report(call, world().comms.share(comm), failure);
}
int report(const char* call, std::shared_ptr<Comm> comm, const Failure& failure) {
  std::shared_ptr<Comm> owner = comm != nullptr ? comm : world().self;
  // Before MPI 4 such errors were MPI_COMM_WORLD's, and programs set its handler alone.
  if (comm == nullptr && owner != nullptr && owner->handler.get() == world().fatal) {
    owner = world().comms.share(MPI_COMM_WORLD);
  }
  const std::shared_ptr<Errhandler> handler = owner == nullptr ? world().fatal : owner->handler.get();
  return report_to(call, *handler, number_of(owner == nullptr ? MPI_COMM_NULL : owner->handle), failure);
}

int report_by(const char* call, const std::shared_ptr<Errhandler>& handler, uintptr_t object, const Failure& failure) {
  return handler == nullptr ? report(call, MPI_COMM_NULL, failure) : report_to(call, *handler, object, failure);
}

// A share, since another thread may finalize the session.
std::shared_ptr<Errhandler> handler_of_session(MPI_Session session) {
  const std::shared_ptr<Session> found = world().sessions.share(session);
  return found == nullptr ? nullptr : found->handler.get();
}

int report_of_file(const char* call, MPI_File file, const Failure& failure) {
  const std::shared_ptr<File> found = world().files.share(file);
  const Handler& handler = found == nullptr ? world().file_handler : found->handler;
  return report_to(call, *handler.get(), number_of(file), failure);
}

int report_of_win(const char* call, MPI_Win win, const Failure& failure) {
  const std::shared_ptr<Window> found = world().windows.share(win);
  return found == nullptr ? report(call, MPI_COMM_NULL, failure)
                          : report_to(call, *found->handler.get(), number_of(win), failure);
}

}  // namespace rondo_mpi

int rondo_mpi_unsupported(const char* call) {
  using namespace rondo_mpi;
  return report(call, MPI_COMM_NULL,
                {MPI_ERR_UNSUPPORTED_OPERATION, "Rondo does not have this part of MPI (docs/mpi.md)"});
}

int rondo_mpi_missing(const char* call, MPI_Comm comm) {
  using namespace rondo_mpi;
  // Other MPIs look before they know the communicator, so a program may have set MPI_COMM_WORLD's handler alone.
  const Comm* found = world().comms.find(comm);
  if (found != nullptr && found->handler.get() == world().fatal) comm = MPI_COMM_NULL;
  return report(call, comm, {MPI_ERR_ARG, "an argument that the call writes to is null"});
}
