#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "mpi/core/objects.h"

namespace rondo_mpi {

// What a call ends with: an error code of MPI, and a sentence. It is thrown by value, from anything that a call runs.
struct Failure {
  int code;
  std::string text;
  bool of_another = false;  // another rank's, which alone knows why
};

[[noreturn]] void fail(int code, const std::string& text);
inline void require(bool holds, int code, const char* text) {
  if (!holds) [[unlikely]]
    fail(code, text);
}

// The exception under way, as what MPI reports. Called in a catch block. A lack of memory is MPI_ERR_NO_MEM, and any
// other std::exception MPI_ERR_INTERN.
Failure caught();
Failure failure_of(const rondo::Error& error);

// Calls the error handler; returns the code, if the handler does. `comm`: whose handler; no communicator:
// MPI_COMM_SELF's. Does not return where the handler ends the job.
int report(const char* call, MPI_Comm comm, const Failure& failure);
// The same for one whose handle may have been freed, and given to another communicator; null: no communicator.
int report(const char* call, std::shared_ptr<Comm> comm, const Failure& failure);
// file: whose handler; no file: MPI_FILE_NULL's.
int report_of_file(const char* call, MPI_File file, const Failure& failure);
// win: whose handler; no window: as report() for no communicator.
int report_of_win(const char* call, MPI_Win win, const Failure& failure);
// The same for the handler of a session, or one that a call is given; null: what report() does for no communicator.
// `object`: the handle that a function of the program gets.
int report_by(const char* call, const std::shared_ptr<Errhandler>& handler, uintptr_t object, const Failure& failure);
// null: there is no such session.
std::shared_ptr<Errhandler> handler_of_session(MPI_Session session);
int report_to(const char* call, Errhandler& handler, uintptr_t object, const Failure& failure);

// Runs a function; report(failure) makes a code of what it throws. No Failure and no std::exception leaves a function
// of MPI: the frames of its caller may be C's.
template <typename Function, typename Report>
int guarded(Function&& function, const Report& report) {
  try {
    function();
    return MPI_SUCCESS;
  } catch (...) {
    return report(caught());
  }
}
// nullptr: no communicator has this handle.
std::shared_ptr<Comm> shared_comm(MPI_Comm comm);
// The body of a function of MPI: what it throws goes to the error handler of the communicator, file, window or session.
// The communicator stays until then: another thread may free it while this one waits.
template <typename Function>
int on(MPI_Comm comm, const char* call, Function&& function) {
  const std::shared_ptr<Comm> held = shared_comm(comm);
  return guarded(function, [&](const Failure& failure) { return report(call, comm, failure); });
}
template <typename Function>
int on(const std::shared_ptr<Comm>& comm, const char* call, Function&& function) {
  return guarded(function, [&](const Failure& failure) { return report(call, comm, failure); });
}
template <typename Function>
int on_file(MPI_File file, const char* call, Function&& function) {
  return guarded(function, [&](const Failure& failure) { return report_of_file(call, file, failure); });
}
template <typename Function>
int on_win(MPI_Win win, const char* call, Function&& function) {
  return guarded(function, [&](const Failure& failure) { return report_of_win(call, win, failure); });
}
template <typename Function>
int on_handler(const std::shared_ptr<Errhandler>& handler, uintptr_t object, const char* call, Function&& function) {
  return guarded(function, [&](const Failure& failure) { return report_by(call, handler, object, failure); });
}
template <typename Function>
int on_session(MPI_Session session, const char* call, Function&& function) {
  return on_handler(handler_of_session(session), number_of(session), call, function);
}
template <typename Function>
int run(const char* call, Function&& function) {
  return guarded(function, [&](const Failure& failure) { return report(call, MPI_COMM_NULL, failure); });
}

// What ended the last call of this thread that failed. It is thread-local: MPI_Error_string() finds the sentence of a
// code there.
const Failure& last_failure();
// Makes it the last one of this thread; returns its code.
int remember(Failure failure);

#ifdef MPI_ERR_PROC_FAILED
inline constexpr int kProcessFailed = MPI_ERR_PROC_FAILED;
#else
inline constexpr int kProcessFailed = MPI_ERR_PROC_ABORTED;
#endif

#ifdef MPI_ERR_REVOKED
inline constexpr int kCommRevoked = MPI_ERR_REVOKED;
#else
inline constexpr int kCommRevoked = MPI_ERR_PROC_ABORTED;
#endif

// Ends the job: this process, and by its launcher or the engine all others.
[[noreturn]] void end_job(const std::string& sentence, int code);

// "rank 3 on host (pid 123)".
std::string who();

}  // namespace rondo_mpi
