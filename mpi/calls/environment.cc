// Start and end, clocks, memory, versions, sessions, operations; handles as integers. Calls that MPI allows before
// MPI_Init() and after MPI_Finalize() take nothing of the engine: World is made by the first call of any.

#include <mpi.h>
#include <rondo/rondo.h>
#include <unistd.h>

#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "mpi/core/agreement.h"
#include "mpi/core/attributes.h"
#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/file.h"
#include "mpi/core/fold.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// Any thread may call in any case. The level is what the program asked for, since it may branch by it.
void init(int required, int* provided) {
  World& w = world();
  require(!w.initialized, MPI_ERR_OTHER,
          w.finalized ? "MPI was finalized: it cannot be started again" : "MPI_Init was called twice");
  open_world();
  w.thread_level = std::min(std::max(required, MPI_THREAD_SINGLE), MPI_THREAD_MULTIPLE);
  w.main_thread = std::this_thread::get_id();
  w.initialized = true;
  *provided = w.thread_level;
}

}  // namespace

// The program's arguments are not read: a launcher tells by the environment.
void MPI_Init(int*, char***) {
  int provided = 0;
  init(MPI_THREAD_SINGLE, &provided);
}
void MPI_Init_thread(int*, char***, int required, int* provided) { init(required, provided); }
// Attributes of MPI_COMM_SELF go first: their delete functions may still call MPI, which libraries rely on. Sessions
// may still use the world after this.
void MPI_Finalize(void) {
  World& w = world();
  require(w.initialized, MPI_ERR_OTHER, "MPI_Finalize was called before MPI_Init");
  require(!w.finalized, MPI_ERR_OTHER, "MPI_Finalize was called twice");
  if (const auto self = w.comms.share(MPI_COMM_SELF)) delete_attributes(self->handle, self->attributes);
  close_world();
  w.finalized = true;
}
// Any thread may ask, at any time.
void MPI_Initialized(int* flag) { *flag = world().initialized; }
void MPI_Finalized(int* flag) { *flag = world().finalized; }
// Set by MPI_Init(), before any other thread can ask.
void MPI_Query_thread(int* provided) { *provided = world().thread_level; }
void MPI_Is_thread_main(int* flag) { *flag = world().main_thread == std::this_thread::get_id(); }
// It ends the whole job, whichever communicator is given, which MPI permits.
void MPI_Abort(MPI_Comm, int errorcode) {
  end_job(who() + " called MPI_Abort with code " + std::to_string(errorcode), errorcode);
}

// Each rank's own clock: MPI_WTIME_IS_GLOBAL is false.
double MPI_Wtime(void) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// The steady clock counts nanoseconds.
double MPI_Wtick(void) { return 1e-9; }

void MPI_Get_version(int* version, int* subversion) {
  *version = MPI_VERSION;
  *subversion = MPI_SUBVERSION;
}
void MPI_Get_library_version(char* version, int* resultlen) {
#ifdef RONDO_MPI_FACE_OPENMPI
  constexpr const char* kVersion = "Open MPI's calls, on Rondo " RONDO_VERSION;  // MLX wants it to begin so
#else
  constexpr const char* kVersion = "Rondo " RONDO_VERSION ", an engine with the calls of MPI";
#endif
  copy_text(kVersion, version, resultlen);
}
// The last byte of `host` stays zero, also where the name was cut.
void MPI_Get_processor_name(char* name, int* resultlen) {
  char host[MPI_MAX_PROCESSOR_NAME] = "";
  gethostname(host, sizeof host - 1);
  copy_text(host, name, resultlen);
}
// -1: the ABI of this face is not the standard's.
void MPI_Abi_get_version(int* abi_major, int* abi_minor) {
#ifdef RONDO_MPI_FACE_STANDARD
  *abi_major = 1;
  *abi_minor = 0;
#else
  *abi_major = *abi_minor = -1;
#endif
}
void MPI_Abi_get_info(MPI_Info* info) {
  calls::MPI_Info_create(info);
  calls::MPI_Info_set(*info, "mpi_aint_size", std::to_string(sizeof(MPI_Aint)).c_str());
  calls::MPI_Info_set(*info, "mpi_count_size", std::to_string(sizeof(MPI_Count)).c_str());
  calls::MPI_Info_set(*info, "mpi_offset_size", std::to_string(sizeof(MPI_Offset)).c_str());
}
void MPI_Abi_get_fortran_info(MPI_Info* info) {
  *info = MPI_INFO_NULL;  // no Fortran
}
void MPI_Get_hw_resource_info(MPI_Info* hw_info) { calls::MPI_Info_create(hw_info); }  // nothing is known
void MPI_Abi_get_fortran_booleans(int, void*, void*, int* is_set) { *is_set = 0; }
int MPIX_Query_cuda_support(void) { return 0; }  // no call takes memory of a GPU
void MPI_Pcontrol(const int, ...) {}

// A cache line's alignment. aligned_alloc() wants a size that is a multiple of it. A size of 0 gives memory, too.
void MPI_Alloc_mem(MPI_Aint size, MPI_Info, void* baseptr) {
  require(size >= 0, MPI_ERR_ARG, "the size is negative");
  void* memory = std::aligned_alloc(64, (static_cast<size_t>(size) + 64) / 64 * 64);
  require(memory != nullptr, MPI_ERR_NO_MEM, "no memory");
  *static_cast<void**>(baseptr) = memory;
}
// Memory of std::aligned_alloc().
void MPI_Free_mem(void* base) { std::free(base); }
void MPI_Get_address(const void* location, MPI_Aint* address) { *address = reinterpret_cast<MPI_Aint>(location); }
// Unchecked, since MPI gives them no error.
MPI_Aint MPI_Aint_add(MPI_Aint base, MPI_Aint disp) { return base + disp; }
MPI_Aint MPI_Aint_diff(MPI_Aint addr1, MPI_Aint addr2) { return addr1 - addr2; }

// --- Operations

// An operation that commutes is folded in any order; else in that of the ranks.
void MPI_Op_create(MPI_User_function* user_fn, int commute, MPI_Op* op) {
  auto made = std::make_shared<Op>();
  made->function = user_fn;
  made->commutative = commute != 0;
  *op = world().ops.add(std::move(made));
}
void MPI_Op_create_c(MPI_User_function_c* user_fn, int commute, MPI_Op* op) {
  auto made = std::make_shared<Op>();
  made->function_c = user_fn;
  made->commutative = commute != 0;
  *op = world().ops.add(std::move(made));
}
// Calls that are under way by the operation share it.
void MPI_Op_free(MPI_Op* op) {
  op_of(*op);
  require(!world().ops.predefined(*op), MPI_ERR_OP, "a predefined operation cannot be freed");
  world().ops.remove(*op);
  *op = MPI_OP_NULL;
}
void MPI_Op_commutative(MPI_Op op, int* commute) { *commute = op_of(op)->commutative; }
void MPI_Reduce_local_c(const void* inbuf, void* inoutbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op) {
  require(count >= 0, MPI_ERR_COUNT, "the count is negative");
  require(inbuf != MPI_IN_PLACE && inoutbuf != MPI_IN_PLACE, MPI_ERR_BUFFER, "MPI_IN_PLACE is no buffer here");
  require(count == 0 || (inbuf != nullptr && inoutbuf != nullptr), MPI_ERR_BUFFER, "a buffer is null");
  require(count == 0 || inbuf != inoutbuf, MPI_ERR_BUFFER, "both buffers are the same");
  const auto type = used_type(datatype);
  const auto how = op_of(op);
  check_fold(*how, *type);
  fold(*how, type, inbuf, inoutbuf, count);
}

// --- Sessions: the world, opened by as many as want it

namespace {
// The process sets that MPI demands; there are no others.
constexpr const char* kSets[] = {"mpi://WORLD", "mpi://SELF"};
Session& session_of(MPI_Session session) { return object(world().sessions, session); }
// Whether it is the world's set; else it is that of this process. Their names have no case.
bool is_world(const char* pset_name) {
  const bool all = strcasecmp(pset_name, kSets[0]) == 0;
  require(all || strcasecmp(pset_name, kSets[1]) == 0, MPI_ERR_ARG, "there is no such process set");
  return all;
}
}  // namespace

// The first one joins the job, and waits for all ranks.
int MPI_Session_init(MPI_Info, MPI_Errhandler errhandler, MPI_Session* session) {
  const auto handler = world().errhandlers.share(errhandler);
  return on_handler(handler, number_of(MPI_SESSION_NULL), __func__, [&] {
    auto made = std::make_shared<Session>();
    made->handler = handler;
    require(handler != nullptr, MPI_ERR_ERRHANDLER, "the error handler is null or was freed");
    open_world();
    *session = world().sessions.add(std::move(made));
  });
}
// The handle goes first: no other thread can begin a call with it while the world is closed. Groups and communicators
// of it that the program has not freed keep the object.
int MPI_Session_finalize(MPI_Session* session) {
  return on_session(*session, __func__, [&] {
    session_of(*session);
    world().sessions.remove(*session);
    *session = MPI_SESSION_NULL;
    close_world();
  });
}
void MPI_Session_get_num_psets(MPI_Session session, MPI_Info, int* npset_names) {
  session_of(session);
  *npset_names = 2;
}
void MPI_Session_get_nth_pset(MPI_Session session, MPI_Info, int n, int* pset_len, char* pset_name) {
  session_of(session);
  require(n >= 0 && n < 2, MPI_ERR_ARG, "there are two process sets");
  copy_beginning(kSets[n], pset_name, pset_len);
}
void MPI_Session_get_info(MPI_Session session, MPI_Info* info) {
  session_of(session);
  calls::MPI_Info_create(info);
  calls::MPI_Info_set(*info, "thread_level", "MPI_THREAD_MULTIPLE");
}
void MPI_Session_get_pset_info(MPI_Session session, const char* pset_name, MPI_Info* info) {
  session_of(session);
  const bool all = is_world(pset_name);
  calls::MPI_Info_create(info);
  calls::MPI_Info_set(*info, "mpi_size", std::to_string(all ? world().engine->size() : 1).c_str());
}
// The group keeps the session, for the buffer of communicators that are made of it.
void MPI_Group_from_session_pset(MPI_Session session, const char* pset_name, MPI_Group* newgroup) {
  session_of(session);
  const bool all = is_world(pset_name);
  *newgroup = publish_group(world().comms.share(all ? MPI_COMM_WORLD : MPI_COMM_SELF)->members,
                            world().sessions.share(session));
}
namespace {

// What only one of the ranks lacks is an error on all. They agree in what they have made, as a group has no messages.
void give_handler(Comm& made, const std::shared_ptr<Errhandler>& handler, const std::shared_ptr<Session>& session) {
  agree(made, [&] {
    require_room();
    require(handler != nullptr, MPI_ERR_ERRHANDLER, "the error handler is null or was freed");
  });
  made.handler = handler;
  made.session = session;
}

}  // namespace

// Called by the members of the group; those with the same string meet, in a series of its hash. They meet in the
// world's communicator, which sessions have, too.
int MPI_Comm_create_from_group(MPI_Group group, const char* stringtag, MPI_Info, MPI_Errhandler errhandler,
                               MPI_Comm* newcomm) {
  const auto handler = world().errhandlers.share(errhandler);
  return on_handler(handler, number_of(MPI_COMM_NULL), __func__, [&] {
    const auto all = world().comms.share(MPI_COMM_WORLD);
    require(all != nullptr, MPI_ERR_OTHER, "MPI is not started");
    const Group members = group_of(group);
    const bool member = std::find(members.ranks.begin(), members.ranks.end(), all->rank) != members.ranks.end();
    const auto made = member ? subset(*all, members.ranks, series_of(stringtag)) : nullptr;
    if (member) give_handler(*made, handler, members.session);
    *newcomm = publish(made);
  });
}

// Leaders are not needed, since each process knows the ranks of both groups in the world.
int MPI_Intercomm_create_from_groups(MPI_Group local_group, int, MPI_Group remote_group, int, const char* stringtag,
                                     MPI_Info, MPI_Errhandler errhandler, MPI_Comm* newintercomm) {
  const auto handler = world().errhandlers.share(errhandler);
  return on_handler(handler, number_of(MPI_COMM_NULL), __func__, [&] {
    const auto all = world().comms.share(MPI_COMM_WORLD);
    require(all != nullptr, MPI_ERR_OTHER, "MPI is not started");
    const Group local = group_of(local_group), remote = group_of(remote_group);
    const uint64_t series = series_of(stringtag);
    const auto made = between(subset(*all, local.ranks, series), remote.ranks, series);
    made->local->session = local.session;
    give_handler(*made, handler, local.session);
    *newintercomm = publish(made);
  });
}

// --- Handles as integers

// The same numbers serve C, Fortran's INTEGER handles (c2f, f2c) and MPI 5's toint() and fromint(). A wrong number
// gives a handle that no table has.
#define INTEGER(Name, Handle, TO, FROM)                \
  int MPI_##Name##_toint(Handle handle) { return TO; } \
  Handle MPI_##Name##_fromint(int number) { return FROM; }
#define IN_TABLE(Name, Handle, table) INTEGER(Name, Handle, world().table.integer(handle), world().table.handle(number))
#ifdef RONDO_MPI_FACE_OPENMPI
// Those that its Fortran header has as constants.
constexpr int kFortranComms = 3;
MPI_Comm fortran_comm(int number) {
  const MPI_Comm named[kFortranComms] = {MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL};
  return number >= 0 && number < kFortranComms ? named[number] : world().comms.handle(number);
}
int fortran_number(MPI_Comm comm) {
  for (int number = 0; number < kFortranComms; ++number) {
    if (fortran_comm(number) == comm) return number;
  }
  return world().comms.integer(comm);
}
INTEGER(Comm, MPI_Comm, fortran_number(handle), fortran_comm(number))
#else
IN_TABLE(Comm, MPI_Comm, comms)
#endif
IN_TABLE(Errhandler, MPI_Errhandler, errhandlers)
IN_TABLE(File, MPI_File, files)
IN_TABLE(Group, MPI_Group, groups)
IN_TABLE(Info, MPI_Info, infos)
IN_TABLE(Message, MPI_Message, messages)
IN_TABLE(Op, MPI_Op, ops)
IN_TABLE(Request, MPI_Request, requests)
IN_TABLE(Session, MPI_Session, sessions)
IN_TABLE(Type, MPI_Datatype, types)
IN_TABLE(Win, MPI_Win, windows)

// Fortran's statuses have the layout of C's.
void MPI_Status_c2f(const MPI_Status* c_status, MPI_Fint* f_status) {
  std::memcpy(f_status, c_status, sizeof *c_status);
}
void MPI_Status_f2c(const MPI_Fint* f_status, MPI_Status* c_status) {
  std::memcpy(c_status, f_status, sizeof *c_status);
}
void MPI_Status_c2f08(const MPI_Status* c_status, MPI_F08_status* f08_status) { *f08_status = *c_status; }

}  // namespace rondo_mpi::calls
