#include "mpi/core/errors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "mpi/core/file.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

struct Sentence {
  int error;
  const char* text;
};
// What MPI_Error_string says of a class.
constexpr Sentence kSentences[] = {
    {MPI_SUCCESS, "no error"},
    {MPI_ERR_BUFFER, "a buffer is null, or too small"},
    {MPI_ERR_COUNT, "a count is negative"},
    {MPI_ERR_TYPE, "a datatype is null, freed, or not committed"},
    {MPI_ERR_TAG, "a tag is negative, or above MPI_TAG_UB"},
    {MPI_ERR_COMM, "a communicator is null, freed, or of the wrong kind"},
    {MPI_ERR_RANK, "a rank is not in the communicator or group"},
    {MPI_ERR_ROOT, "a root is not in the communicator"},
    {MPI_ERR_GROUP, "a group is null or freed"},
    {MPI_ERR_OP, "an operation is null, freed, or not defined for the datatype"},
    {MPI_ERR_TOPOLOGY, "the communicator has no such topology"},
    {MPI_ERR_DIMS, "a dimension does not fit"},
    {MPI_ERR_ARG, "an argument is not allowed"},
    {MPI_ERR_UNKNOWN, "an unknown error"},
    {MPI_ERR_TRUNCATE, "a message is longer than the buffer that received it"},
    {MPI_ERR_OTHER, "an error; standard error has a sentence"},
    {MPI_ERR_INTERN, "an error inside the library"},
    {MPI_ERR_IN_STATUS, "the statuses have the errors"},
    {MPI_ERR_PENDING, "the request is still under way"},
    {MPI_ERR_REQUEST, "a request is null or freed, or of the wrong kind"},
    {MPI_ERR_INFO, "an info is null or freed"},
    {MPI_ERR_INFO_KEY, "an info key is empty, or longer than MPI_MAX_INFO_KEY"},
    {MPI_ERR_INFO_VALUE, "an info value is empty, or longer than MPI_MAX_INFO_VAL"},
    {MPI_ERR_INFO_NOKEY, "the info has no such key"},
    {MPI_ERR_KEYVAL, "a keyval is not valid here"},
    {MPI_ERR_NO_MEM, "no memory"},
    {MPI_ERR_NAME, "no such name was published"},
    {MPI_ERR_PORT, "a port is not valid"},
    {MPI_ERR_SERVICE, "a service is not valid"},
    {MPI_ERR_SPAWN, "processes could not be started"},
    {MPI_ERR_UNSUPPORTED_OPERATION, "Rondo does not have this part of MPI"},
    {MPI_ERR_UNSUPPORTED_DATAREP, "Rondo knows the data representations native, internal and external32"},
    {MPI_ERR_WIN, "a window is null or freed"},
    {MPI_ERR_SIZE, "a size is negative"},
    {MPI_ERR_DISP, "a displacement unit is not positive"},
    {MPI_ERR_LOCKTYPE, "a lock is neither shared nor exclusive"},
    {MPI_ERR_RMA_SYNC, "a call of one-sided communication is not allowed in this epoch"},
    {MPI_ERR_RMA_RANGE, "data lies outside the target's window"},
    {MPI_ERR_RMA_FLAVOR, "the window is of another flavor"},
    {MPI_ERR_FILE, "a file is null or closed"},
    {MPI_ERR_NOT_SAME, "the ranks differ in an argument that must be the same"},
    {MPI_ERR_AMODE, "a file's modes do not go together"},
    {MPI_ERR_FILE_EXISTS, "the file exists"},
    {MPI_ERR_BAD_FILE, "the name is not that of a file"},
    {MPI_ERR_ACCESS, "permission denied"},
    {MPI_ERR_NO_SPACE, "the file system has no room"},
    {MPI_ERR_QUOTA, "the quota of the file system is used up"},
    {MPI_ERR_READ_ONLY, "the file, or its file system, is for reading alone"},
    {MPI_ERR_NO_SUCH_FILE, "there is no such file"},
    {MPI_ERR_FILE_IN_USE, "the file is in use"},
    {MPI_ERR_IO, "the system could not read or write the file"},
    {MPI_ERR_SESSION, "a session is null or finalized"},
    {MPI_ERR_ERRHANDLER, "an error handler is null or freed"},
    {MPI_ERR_VALUE_TOO_LARGE, "a value is too large for its type"},
    {MPI_ERR_PROC_ABORTED, "a process of the job has ended"},
    {kProcessFailed, "a process of the communicator has failed"},
    {kCommRevoked, "the communicator was revoked"},
};

// Classes and codes that the program added, each with its class and text: numbers from MPI_ERR_LASTCODE on. The mutex
// guards the map; functions of the program never run under it.
struct Added {
  static constexpr int kFirst = MPI_ERR_LASTCODE;
  struct Code {
    int error_class;
    std::string text;
  };
  std::mutex mutex;
  std::map<int, Code> codes;

  int add(std::optional<int> error_class) {
    std::lock_guard lock(mutex);
    const int code = codes.empty() ? kFirst + 1 : codes.rbegin()->first + 1;
    codes[code] = {error_class.value_or(code), ""};
    return code;
  }
  // Removes a class, or a code of a class.
  void remove(int code, bool is_class) {
    std::lock_guard lock(mutex);
    const auto found = codes.find(code);
    require(found != codes.end() && (found->second.error_class == code) == is_class, MPI_ERR_ARG,
            "the program has not added this error");
    require(found->second.text.empty(), MPI_ERR_ARG, "the error still has its text");
    require(!is_class || std::count_if(codes.begin(), codes.end(),
                                       [&](const auto& entry) { return entry.second.error_class == code; }) == 1,
            MPI_ERR_ARG, "the error class still has codes");
    codes.erase(found);
  }
};
// Never destroyed: a program may call MPI at its very end.
Added& added() {
  static Added* made = new Added;
  return *made;
}

}  // namespace

// The value of MPI_LASTUSEDCODE.
int last_used_code() {
  std::lock_guard lock(added().mutex);
  return added().codes.empty() ? Added::kFirst : added().codes.rbegin()->first;
}

// Local: codes of different ranks are equal only where all add them in one order.
void MPI_Add_error_class(int* errorclass) { *errorclass = added().add(std::nullopt); }
void MPI_Add_error_code(int errorclass, int* errorcode) { *errorcode = added().add(errorclass); }
void MPI_Add_error_string(int errorcode, const char* string) {
  require(std::strlen(string) < MPI_MAX_ERROR_STRING, MPI_ERR_ARG, "the text is longer than MPI_MAX_ERROR_STRING");
  std::lock_guard lock(added().mutex);
  const auto found = added().codes.find(errorcode);
  require(found != added().codes.end(), MPI_ERR_ARG, "the program has not added this error");
  found->second.text = string;
}
void MPI_Remove_error_class(int errorclass) { added().remove(errorclass, true); }
void MPI_Remove_error_code(int errorcode) { added().remove(errorcode, false); }
// An empty text is none: the code may be removed then.
void MPI_Remove_error_string(int errorcode) { calls::MPI_Add_error_string(errorcode, ""); }

// A class is its own class, and so is a code that nobody has added.
void MPI_Error_class(int errorcode, int* errorclass) {
  std::lock_guard lock(added().mutex);
  const auto found = added().codes.find(errorcode);
  *errorclass = found == added().codes.end() ? errorcode : found->second.error_class;
}

// Where the code is that of this thread's last failure, its sentence says more than its class.
void MPI_Error_string(int errorcode, char* string, int* resultlen) {
  std::string text;
  {
    std::lock_guard lock(added().mutex);
    const auto found = added().codes.find(errorcode);
    if (found != added().codes.end()) {
      text = found->second.text;
    } else if (errorcode != MPI_SUCCESS && last_failure().code == errorcode) {
      text = last_failure().text;
    } else {
      const Sentence* sentence = std::find_if(std::begin(kSentences), std::end(kSentences),
                                              [&](const Sentence& s) { return s.error == errorcode; });
      text = sentence == std::end(kSentences) ? "error class " + std::to_string(errorcode) : sentence->text;
    }
  }
  if (text.size() >= MPI_MAX_ERROR_STRING) text.resize(MPI_MAX_ERROR_STRING - 1);
  std::memcpy(string, text.c_str(), text.size() + 1);
  *resultlen = static_cast<int>(text.size());
}

// --- Error handlers

namespace {
// All kinds of handler functions have one form: a pointer to the handle, a pointer to the code, and more that is not
// given.
void create(MPI_Comm_errhandler_function* function, MPI_Errhandler* errhandler) {
  auto made = std::make_shared<Errhandler>();
  made->kind = Errhandler::Kind::kFunction;
  made->function = function;
  *errhandler = world().errhandlers.add(std::move(made));
}
// A share: the object that gets it keeps it.
std::shared_ptr<Errhandler> handler_of(MPI_Errhandler errhandler) {
  auto found = world().errhandlers.share(errhandler);
  require(found != nullptr, MPI_ERR_ERRHANDLER, "the error handler is null or was freed");
  return found;
}
// A handle of its own: the one that made it may have been freed.
MPI_Errhandler reveal(const std::shared_ptr<Errhandler>& handler) {
  if (world().errhandlers.predefined(handler->handle)) return handler->handle;
  return world().errhandlers.add(std::make_shared<Errhandler>(*handler));
}
void call_handler(const char* call, const Handler& handler, uintptr_t object, int errorcode) {
  report_to(call, *handler.get(), object, {errorcode, "the program called the error handler"});
}
// MPI_FILE_NULL's is that which the next files get.
Handler& handler_in(MPI_File file) {
  return file == MPI_FILE_NULL ? world().file_handler : object(world().files, file).handler;
}
}  // namespace

void MPI_Comm_create_errhandler(MPI_Comm_errhandler_function* function, MPI_Errhandler* errhandler) {
  create(function, errhandler);
}
void MPI_Session_create_errhandler(MPI_Session_errhandler_function* function, MPI_Errhandler* errhandler) {
  create(reinterpret_cast<MPI_Comm_errhandler_function*>(function), errhandler);
}
// Failures from then on go to it, also those of calls that other threads have begun.
void MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler errhandler) {
  comm_of(comm).handler = handler_of(errhandler);
}
// The program frees the handle that it gets, unless it is a predefined one.
void MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler* errhandler) {
  *errhandler = reveal(comm_of(comm).handler.get());
}
// A handler that ends the job does not return.
void MPI_Comm_call_errhandler(MPI_Comm comm, int errorcode) {
  call_handler(__func__, comm_of(comm).handler, number_of(comm), errorcode);
}
void MPI_Session_set_errhandler(MPI_Session session, MPI_Errhandler errhandler) {
  object(world().sessions, session).handler = handler_of(errhandler);
}
void MPI_Session_get_errhandler(MPI_Session session, MPI_Errhandler* errhandler) {
  *errhandler = reveal(object(world().sessions, session).handler.get());
}
void MPI_Session_call_errhandler(MPI_Session session, int errorcode) {
  call_handler(__func__, object(world().sessions, session).handler, number_of(session), errorcode);
}
void MPI_File_create_errhandler(MPI_File_errhandler_function* function, MPI_Errhandler* errhandler) {
  create(reinterpret_cast<MPI_Comm_errhandler_function*>(function), errhandler);
}
void MPI_File_set_errhandler(MPI_File file, MPI_Errhandler errhandler) { handler_in(file) = handler_of(errhandler); }
void MPI_File_get_errhandler(MPI_File file, MPI_Errhandler* errhandler) {
  *errhandler = reveal(handler_in(file).get());
}
void MPI_File_call_errhandler(MPI_File file, int errorcode) {
  call_handler(__func__, handler_in(file), number_of(file), errorcode);
}
void MPI_Win_create_errhandler(MPI_Win_errhandler_function* function, MPI_Errhandler* errhandler) {
  create(reinterpret_cast<MPI_Comm_errhandler_function*>(function), errhandler);
}
void MPI_Win_set_errhandler(MPI_Win win, MPI_Errhandler errhandler) {
  object(world().windows, win).handler = handler_of(errhandler);
}
void MPI_Win_get_errhandler(MPI_Win win, MPI_Errhandler* errhandler) {
  *errhandler = reveal(object(world().windows, win).handler.get());
}
void MPI_Win_call_errhandler(MPI_Win win, int errorcode) {
  call_handler(__func__, object(world().windows, win).handler, number_of(win), errorcode);
}
// Objects that have it keep it. A predefined one stays, and only the program's handle becomes null.
void MPI_Errhandler_free(MPI_Errhandler* errhandler) {
  handler_of(*errhandler);
  world().errhandlers.remove(*errhandler);
  *errhandler = MPI_ERRHANDLER_NULL;
}

}  // namespace rondo_mpi::calls
