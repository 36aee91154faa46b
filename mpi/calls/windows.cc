// One-sided communication: windows, what moves data, what synchronizes. Data has moved when a call returns, on the
// target, too: so the calls with a request return one that is over, and flushes have nothing to wait for. Errors go to
// the handler of the window, or of the communicator while it is made. A target on another host answers by the engine's
// thread (core/window_service.h).

#include "mpi/core/window.h"

#include <algorithm>
#include <limits>

#include "mpi/core/agreement.h"
#include "mpi/core/attributes.h"
#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/request.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

// A share keeps the window until the call is over, also where another thread ends the handle.
std::shared_ptr<Window> window_of(MPI_Win win) {
  object(world().windows, win);
  return world().windows.share(win);
}
std::shared_ptr<Window> dynamic(MPI_Win win) {
  auto window = window_of(win);
  require(window->flavor == MPI_WIN_FLAVOR_DYNAMIC, MPI_ERR_RMA_FLAVOR, "the window is not a dynamic one");
  return window;
}

// MPI_Get_accumulate's origin of MPI_NO_OP is not read, also not its type.
Data operand(const void* at, MPI_Count count, MPI_Datatype type, MPI_Op op) {
  return op == MPI_NO_OP ? Data{nullptr, 0, byte_type()} : data_of(at, count, type);
}
Data nowhere() { return {nullptr, 0, byte_type()}; }
Window::Place place(int target, MPI_Aint displacement, MPI_Count count, MPI_Datatype type) {
  const Data there = data_of(nullptr, count, type);
  return {target, displacement, there.count, there.type};
}

// The data has moved when the call returns: the request is over.
void over(MPI_Request* request) { *request = add_request(make_request(Request::Kind::kCollective, nullptr)); }

bool has(const Info::Entries& hints, const char* key) {
  return std::any_of(hints.begin(), hints.end(),
                     [&](const auto& entry) { return entry.first == key && entry.second == "true"; });
}

// base: null but for MPI_Win_create. Collective. MPI_ERRORS_ARE_FATAL is a new window's handler, whatever the
// communicator has.
std::shared_ptr<Window> make(MPI_Comm comm, int flavor, void* base, MPI_Aint size, MPI_Aint unit, MPI_Info info) {
  Comm& of = intracomm_of(comm);
  Info::Entries hints;
  agree(of, [&] {
    require(size >= 0, MPI_ERR_SIZE, "the size of the window is negative");
    require(unit > 0 && unit <= std::numeric_limits<int>::max(), MPI_ERR_DISP,  // MPI_WIN_DISP_UNIT is an int
            "the displacement unit is not positive, or more than an int holds");
    hints = hints_of(info);
  });
  auto made = Window::make(of, flavor, base, size, unit,
                           flavor == MPI_WIN_FLAVOR_SHARED && !has(hints, "alloc_shared_noncontig"));
  made->handler = world().fatal;
  made->info.entries = Info::Entries{{"accumulate_ordering", "rar,raw,war,waw"}, {"accumulate_ops", "same_op_no_op"}};
  take_hints(made->info, hints, kWindowHints);
  return made;
}
// Puts its memory on this rank into *baseptr, which a program may have of any pointer's type.
MPI_Win publish(const std::shared_ptr<Window>& window, void* baseptr) {
  if (baseptr != nullptr) *static_cast<void**>(baseptr) = window->part(window->comm().rank).base;
  return world().windows.add(window);
}

// Ranks of the window that a group names.
std::vector<int> ranks_in(const Window& window, MPI_Group group) {
  const std::vector<int>& members = window.comm().members;
  std::vector<int> ranks;
  for (const int rank : group_of(group).ranks) {
    const auto found = std::find(members.begin(), members.end(), rank);
    require(found != members.end(), MPI_ERR_GROUP, "the group has a rank that is not in the window");
    ranks.push_back(static_cast<int>(found - members.begin()));
  }
  return ranks;
}

}  // namespace

// --- Windows

// Collective. The memory is the program's, and stays until MPI_Win_free() has returned.
void MPI_Win_create_c(void* base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  *win = publish(make(comm, MPI_WIN_FLAVOR_CREATE, base, size, disp_unit, info), nullptr);
}
// Collective. The memory is zeroed, and goes with the window.
void MPI_Win_allocate_c(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr, MPI_Win* win) {
  *win = publish(make(comm, MPI_WIN_FLAVOR_ALLOCATE, nullptr, size, disp_unit, info), baseptr);
}
// Collective. MPI_ERR_RMA_SHARED where the ranks do not all share memory.
void MPI_Win_allocate_shared_c(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr,
                               MPI_Win* win) {
  *win = publish(make(comm, MPI_WIN_FLAVOR_SHARED, nullptr, size, disp_unit, info), baseptr);
}
// A rank whose memory this process cannot address has size 0, as MPI 4.1 says of windows that are not shared ones.
void MPI_Win_shared_query_c(MPI_Win win, int rank, MPI_Aint* size, MPI_Aint* disp_unit, void* baseptr) {
  const auto window = window_of(win);
  require(window->flavor != MPI_WIN_FLAVOR_DYNAMIC, MPI_ERR_RMA_FLAVOR, "a dynamic window has no such memory");
  const int ranks = window->comm().size();
  const bool first = rank == MPI_PROC_NULL;  // of those that have memory
  require(first || (rank >= 0 && rank < ranks), MPI_ERR_RANK, "the rank is not in the window");
  for (rank = first ? 0 : rank; first && rank + 1 < ranks && window->part(rank).size == 0;) ++rank;
  const Window::Part part = window->part(rank);
  *size = part.base == nullptr ? 0 : part.size;  // null: this process has no address for it
  *disp_unit = part.unit;
  *static_cast<void**>(baseptr) = *size == 0 ? nullptr : part.base;
}
void MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  *win = publish(make(comm, MPI_WIN_FLAVOR_DYNAMIC, nullptr, 0, 1, info), nullptr);
}
// Ranges may be attached in any order; the program keeps the memory until it detaches them. Where ranks share memory,
// nothing is registered: the kernel copies whatever is there.
void MPI_Win_attach(MPI_Win win, void* base, MPI_Aint size) {
  const auto window = dynamic(win);
  require(size >= 0, MPI_ERR_SIZE, "the size is negative");
  window->attach(base, size);
}
// The program lets no rank access the memory any more.
void MPI_Win_detach(MPI_Win win, const void* base) { dynamic(win)->detach(base); }

// Collective, and waits for all: no rank accesses the memory afterwards. An open epoch is an error, and the window
// stays.
int MPI_Win_free(MPI_Win* win) {
  bool closed = false;  // also if a rank has failed
  const int code = on_win(*win, __func__, [&] {
    const auto window = window_of(*win);
    window->require_idle();
    delete_attributes(*win, window->attributes);
    closed = true;
    window->close();
  });
  if (!closed) return code;
  world().windows.remove(*win);  // the window's handler has had the handle
  *win = MPI_WIN_NULL;
  return code;
}
void MPI_Win_get_group(MPI_Win win, MPI_Group* group) {
  const auto window = window_of(win);
  *group = publish_group(window->comm().members, window->comm().session);
}
void MPI_Win_set_info(MPI_Win win, MPI_Info info) { take_hints(window_of(win)->info, hints_of(info), kWindowHints); }
void MPI_Win_get_info(MPI_Win win, MPI_Info* info) { *info = new_info(window_of(win)->info.entries.get()); }

// --- Data

#define ORIGIN(qualifier) qualifier void *origin, MPI_Count origin_count, MPI_Datatype origin_type
#define RESULT void *result, MPI_Count result_count, MPI_Datatype result_type
#define TARGET int target, MPI_Aint disp, MPI_Count target_count, MPI_Datatype target_type
#define AT place(target, disp, target_count, target_type)

// A call without a request, and with one. Without a request the program learns of errors by the call's code, not by the
// next synchronization.
#define MOVES(Name, name, parameters, ...)                                      \
  void MPI_##Name##_c(parameters, MPI_Win win) { window_of(win)->__VA_ARGS__; } \
  void MPI_R##name##_c(parameters, MPI_Win win, MPI_Request* request) {         \
    window_of(win)->__VA_ARGS__;                                                \
    over(request);                                                              \
  }
#define LIST(...) __VA_ARGS__
MOVES(Put, put, LIST(ORIGIN(const), TARGET), put(data_of(origin, origin_count, origin_type), AT))
MOVES(Get, get, LIST(ORIGIN(), TARGET), get(data_of(origin, origin_count, origin_type), AT))
MOVES(Accumulate, accumulate, LIST(ORIGIN(const), TARGET, MPI_Op op),
      accumulate(operand(origin, origin_count, origin_type, op), nowhere(), AT, *op_of(op)))
MOVES(Get_accumulate, get_accumulate, LIST(ORIGIN(const), RESULT, TARGET, MPI_Op op),
      accumulate(operand(origin, origin_count, origin_type, op), data_of(result, result_count, result_type), AT,
                 *op_of(op)))

// Other updates of the same target wait while this one is made.
void MPI_Fetch_and_op(const void* origin, void* result, MPI_Datatype type, int target, MPI_Aint disp, MPI_Op op,
                      MPI_Win win) {
  window_of(win)->accumulate(operand(origin, 1, type, op), data_of(result, 1, type), place(target, disp, 1, type),
                             *op_of(op));
}
// `result` gets what was there, whether it was equal or not.
void MPI_Compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int target,
                          MPI_Aint disp, MPI_Win win) {
  window_of(win)->compare_and_swap(origin, compare, result, place(target, disp, 1, type));
}

// --- Synchronization

// Other assertions than MPI_MODE_NOSUCCEED would save nothing. The barrier is made in any case.
void MPI_Win_fence(int assert, MPI_Win win) { window_of(win)->fence((assert& MPI_MODE_NOSUCCEED) == 0); }
// It returns when this rank has the lock: MPI lets it return earlier, and programs must not rely on either.
void MPI_Win_lock(int lock_type, int rank, int assert, MPI_Win win) {
  window_of(win)->lock(lock_type, rank, (assert& MPI_MODE_NOCHECK) == 0);
}
// Accesses have ended before: only the lock is given back.
void MPI_Win_unlock(int rank, MPI_Win win) { window_of(win)->unlock(rank); }
void MPI_Win_lock_all(int assert, MPI_Win win) { window_of(win)->lock_all((assert& MPI_MODE_NOCHECK) == 0); }
void MPI_Win_unlock_all(MPI_Win win) { window_of(win)->unlock_all(); }
void MPI_Win_flush(int rank, MPI_Win win) { window_of(win)->flush(rank); }
void MPI_Win_flush_all(MPI_Win win) { window_of(win)->flush_all(); }
void MPI_Win_sync(MPI_Win win) { window_of(win)->sync(); }
// It does not wait; MPI_Win_start() waits for all posts of its group. Assertions are not read.
void MPI_Win_post(MPI_Group group, int, MPI_Win win) {
  const auto window = window_of(win);
  window->post(ranks_in(*window, group));
}
void MPI_Win_start(MPI_Group group, int, MPI_Win win) {
  const auto window = window_of(win);
  window->start(ranks_in(*window, group));
}
void MPI_Win_complete(MPI_Win win) { window_of(win)->complete(); }
// Waits until all origins have called MPI_Win_complete().
void MPI_Win_wait(MPI_Win win) { window_of(win)->done(true); }
// False: the exposure epoch goes on, and no origin's call is taken.
void MPI_Win_test(MPI_Win win, int* flag) { *flag = window_of(win)->done(false); }

}  // namespace rondo_mpi::calls
