#include "mpi/core/window.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>

#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/fold.h"
#include "mpi/core/memory_reach.h"
#include "mpi/core/message_reach.h"
#include "mpi/core/type.h"

namespace rondo_mpi {
namespace {

// The one named type that a type with elements is made of. MPI wants that of accumulates, so each element can be
// updated by itself.
std::shared_ptr<const Type> basic_of(const Type& type) {
  if (type.basic != Basic::kNone || type.pieces.empty()) return type.shared_from_this();
  std::shared_ptr<const Type> found;
  for (const Piece& piece : type.pieces) {
    if (piece.count == 0 || piece.type->size == 0) continue;
    const auto one = basic_of(*piece.type);
    require(found == nullptr || one == found, MPI_ERR_TYPE, "the datatype is made of several named ones");
    found = one;
  }
  return found;
}

// Dense data is used where it lies. Other data is packed into `room`, which must live as long as the result.
std::byte* packed(const Data& data, std::vector<std::byte>& room) {
  if (data.type->dense) return static_cast<std::byte*>(data.data);
  room.resize(static_cast<size_t>(data.bytes()));
  pack(*data.type, data.data, data.count, room.data());
  return room.data();
}

}  // namespace

// --- Making one

std::shared_ptr<Window> Window::make(const Comm& comm, int flavor, void* base, MPI_Aint size, MPI_Aint unit,
                                     bool adjacent) {
  std::shared_ptr<Window> window(new Window(comm));
  window->flavor = flavor;
  window->size = size;
  window->unit = static_cast<int>(unit);
  window->meet(base, unit);
  window->reach_ = window->made_reach(base, adjacent);
  return window;
}

Window::Window(const Comm& comm) : comm_(duplicate(comm)), peers_(comm.members.size()), held_(peers_.size()) {}

void Window::require_idle() const {
  require(holds_none(), MPI_ERR_RMA_SYNC, "the window is locked");
  require(!started_, MPI_ERR_RMA_SYNC, "MPI_Win_complete was not called");
  require(!posted_, MPI_ERR_RMA_SYNC, "MPI_Win_wait was not called");
}

// The barrier waits until no rank accesses this one's memory. After a failure no rank can be waited for, and the memory
// is not touched any more either.
void Window::close() {
  try {
    comm_->engine->barrier();
  } catch (...) {
    reach_->close();
    throw;
  }
  reach_->close();
}

// Addresses and process ids go to all, and mean something to ranks of the same host.
void Window::meet(void* base, MPI_Aint own_unit) {
  const int64_t own[4] = {reinterpret_cast<int64_t>(base), size, own_unit, getpid()};
  std::vector<int64_t> all(4 * peers_.size());
  comm_->engine->all_gather(own, all);
  for (size_t r = 0; r < peers_.size(); ++r) {
    const int64_t* from = &all[4 * r];
    peers_[r] = {reinterpret_cast<std::byte*>(from[0]), from[1], from[2], static_cast<pid_t>(from[3])};
  }
}

// All ranks have the same topology, so all choose the same.
std::unique_ptr<Reach> Window::made_reach(void* base, bool adjacent) {
  if (comm_->size() == 1 || comm_->engine->topology().one_island()) {
    return std::make_unique<MemoryReach>(*comm_, flavor, peers_, adjacent);
  }
  require(flavor != MPI_WIN_FLAVOR_SHARED, MPI_ERR_RMA_SHARED,
          "not all ranks share memory, as those of one host do: MPI_Win_allocate makes windows of several hosts");
  return std::make_unique<MessageReach>(comm_, flavor, base, size);
}

Window::Part Window::part(int rank) const {
  const Reach::Peer& of = peers_[static_cast<size_t>(rank)];
  return {reach_->memory(rank), of.size, of.unit};
}

// --- Data

// MPI_ERR_RANK for a target that is none; callers have taken MPI_PROC_NULL before.
const Reach::Peer& Window::peer(int target) const {
  require(target >= 0 && target < comm_->size(), MPI_ERR_RANK, "the target is no rank of the window");
  return peers_[static_cast<size_t>(target)];
}

// A lock, or the start of a group of targets, ends a fence's epoch.
bool Window::may_access(int target) const {
  if (held_[static_cast<size_t>(target)] != Held::kNot) return true;
  if (started_) return std::binary_search(targets_.begin(), targets_.end(), target);
  return fenced_.load(std::memory_order_relaxed);
}

// The place, which lies in the target's memory. Displacements of a dynamic window are addresses, which only the target
// can check. Products and sums are checked: a program's displacement may be any number. Bounds are those of the bytes
// that the type has, in whichever direction its extent goes.
Reach::Place Window::checked(const Place& place) const {
  const Reach::Peer& there = peer(place.target);
  require(may_access(place.target), MPI_ERR_RMA_SYNC, "this rank has no access epoch at the target");
  const Type& type = *place.type;
  constexpr int kOutside = MPI_ERR_RMA_RANGE;
  const Reach::Place found{place.target, product(place.displacement, there.unit, kOutside), place.count, type};
  if (flavor == MPI_WIN_FLAVOR_DYNAMIC || place.bytes() == 0) return found;
  const MPI_Count last = product(place.count - 1, type.extent(), kOutside);
  const MPI_Count first = sum(type.true_lb, std::min<MPI_Count>(last, 0), kOutside);
  const MPI_Count end = sum(type.true_ub, std::max<MPI_Count>(last, 0), kOutside);
  require(sum(found.begin, first, kOutside) >= 0 && sum(found.begin, end, kOutside) <= there.size, kOutside,
          "the data lies outside the target's window");
  return found;
}

void Window::put(const Data& origin, const Place& to) {
  if (to.target == MPI_PROC_NULL) return;
  require(origin.bytes() == to.bytes(), MPI_ERR_TYPE, "origin and target differ in length");
  std::vector<std::byte> room;
  const std::byte* from = packed(origin, room);
  const Reach::Place place = checked(to);
  if (place.bytes() > 0) reach_->put(place, from);
}

// Data that is not dense is read into memory of its own and unpacked from there.
void Window::get(const Data& origin, const Place& from) {
  if (from.target == MPI_PROC_NULL) return;
  require(origin.bytes() == from.bytes(), MPI_ERR_TYPE, "origin and target differ in length");
  const Reach::Place place = checked(from);
  if (place.bytes() == 0) return;
  if (origin.type->dense) return reach_->get(place, static_cast<std::byte*>(origin.data));
  std::vector<std::byte> room(static_cast<size_t>(origin.bytes()));
  reach_->get(place, room.data());
  unpack(*origin.type, origin.data, origin.count, room.data(), origin.bytes());
}

// Arguments are checked before the target is asked, so an error changes nothing.
void Window::accumulate(const Data& origin, const Data& result, const Place& at, const Op& op) {
  require(!op.user(), MPI_ERR_OP, "an operation of the program's does not accumulate");
  if (at.target == MPI_PROC_NULL) return;
  peer(at.target);
  const MPI_Count bytes = at.bytes();
  if (bytes == 0) return;
  const std::shared_ptr<const Type> basic = basic_of(*at.type);
  check_fold(op, *basic);
  const bool changes = op.handle != MPI_NO_OP;
  require(!changes || origin.bytes() == bytes, MPI_ERR_TYPE, "origin and target differ in length");
  const Reach::Place place = checked(at);
  std::vector<std::byte> room, before(result.count > 0 ? static_cast<size_t>(bytes) : 0);
  reach_->update(place, op, basic, changes ? packed(origin, room) : nullptr, before.empty() ? nullptr : before.data());
  if (result.count > 0) unpack(*result.type, result.data, result.count, before.data(), bytes);
}

// MPI allows this for integers, logicals and bytes; characters are taken, too.
void Window::compare_and_swap(const void* origin, const void* compare, void* result, const Place& at) {
  if (at.target == MPI_PROC_NULL) return;
  const Reach::Place place = checked(at);
  if (place.bytes() == 0) return;
  const Basic basic = place.type.basic;
  require(basic == Basic::kSigned || basic == Basic::kUnsigned || basic == Basic::kLogical || basic == Basic::kByte ||
              basic == Basic::kChar,
          MPI_ERR_TYPE, "values of this datatype are not compared");
  std::vector<std::byte> before(static_cast<size_t>(place.bytes()));
  reach_->swap(place, static_cast<const std::byte*>(origin), static_cast<const std::byte*>(compare), before.data());
  std::memcpy(result, before.data(), before.size());
}

// --- Synchronization

// Accesses are complete when their calls return, so a barrier ends the epoch.
void Window::fence(bool succeeds) {
  require_idle();
  sync();
  comm_->engine->barrier();
  fenced_ = succeeds;
}
void Window::flush(int target) {
  if (target == MPI_PROC_NULL) return;
  peer(target);
  require(held_[static_cast<size_t>(target)] != Held::kNot, MPI_ERR_RMA_SYNC, "the target is not locked");
  sync();
}
void Window::flush_all() {
  require(!holds_none(), MPI_ERR_RMA_SYNC, "no target is locked");
  sync();
}
// A memory barrier: no load or store of the program moves across MPI_Win_sync().
void Window::sync() { std::atomic_thread_fence(std::memory_order_seq_cst); }

bool Window::holds_none() const {
  return !all_held_ && std::all_of(held_.begin(), held_.end(), [](const auto& how) { return how == Held::kNot; });
}
// The fence puts what was done under the lock before its end.
void Window::let_go(int target) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Held how = held_[static_cast<size_t>(target)].exchange(Held::kNot);
  // No lock was taken (MPI_MODE_NOCHECK), so none is given back.
  if (how == Held::kUnchecked) return;
  reach_->unlock(target, how == Held::kExclusive ? Reach::Lock::kExclusive : Reach::Lock::kShared);
}

// The lock is taken before the epoch is marked: where the wait throws, this rank has no epoch.
void Window::lock(int type, int target, bool checked) {
  require(type == MPI_LOCK_SHARED || type == MPI_LOCK_EXCLUSIVE, MPI_ERR_LOCKTYPE, "there is no such kind of lock");
  if (target == MPI_PROC_NULL) return;
  peer(target);
  std::atomic<Held>& how = held_[static_cast<size_t>(target)];
  require(how == Held::kNot && !all_held_ && !started_, MPI_ERR_RMA_SYNC, "this rank has an access epoch already");
  const bool exclusive = type == MPI_LOCK_EXCLUSIVE;
  if (checked) reach_->lock(target, exclusive ? Reach::Lock::kExclusive : Reach::Lock::kShared);
  fenced_ = false;
  how = !checked ? Held::kUnchecked : exclusive ? Held::kExclusive : Held::kShared;
}
void Window::unlock(int target) {
  if (target == MPI_PROC_NULL) return;
  peer(target);
  require(held_[static_cast<size_t>(target)] != Held::kNot && !all_held_, MPI_ERR_RMA_SYNC, "the target is not locked");
  let_go(target);
}
// MPI_Win_lock_all() is a shared lock of every target.
void Window::lock_all(bool checked) {
  require(holds_none() && !started_, MPI_ERR_RMA_SYNC, "this rank has an access epoch already");
  try {
    for (int target = 0; target < comm_->size(); ++target) {
      if (checked) reach_->lock(target, Reach::Lock::kShared);
      held_[static_cast<size_t>(target)] = checked ? Held::kShared : Held::kUnchecked;
    }
  } catch (...) {  // a rank has failed: no lock is left to give back, and the window can be freed
    for (std::atomic<Held>& how : held_) how = Held::kNot;
    throw;
  }
  fenced_ = false;
  all_held_ = true;
}
void Window::unlock_all() {
  require(all_held_, MPI_ERR_RMA_SYNC, "MPI_Win_lock_all was not called");
  std::exception_ptr failure;  // also if a rank has failed every target is let go: the window can be freed
  for (int target = 0; target < comm_->size(); ++target) {
    try {
      let_go(target);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  all_held_ = false;
  if (failure) std::rethrow_exception(failure);
}

// Post, start, complete and wait: post() tells the origins, and start() hears each target. complete() tells the
// targets, and done() hears each origin.
void Window::post(const std::vector<int>& origins) {
  require(!posted_, MPI_ERR_RMA_SYNC, "an exposure epoch is open already");
  origins_ = origins;
  reach_->tell(Reach::Word::kPosted, origins_);
  posted_ = true;
  fenced_ = false;
}
void Window::start(const std::vector<int>& targets) {
  require(!started_ && !all_held_, MPI_ERR_RMA_SYNC, "this rank has an access epoch already");
  targets_ = targets;
  std::sort(targets_.begin(), targets_.end());  // each access looks for its target
  reach_->hear(Reach::Word::kPosted, targets_, true);
  started_ = true;
  fenced_ = false;
}
void Window::complete() {
  require(started_, MPI_ERR_RMA_SYNC, "MPI_Win_start was not called");
  started_ = false;
  reach_->tell(Reach::Word::kCompleted, targets_);
}
bool Window::done(bool wait) {
  require(posted_, MPI_ERR_RMA_SYNC, "MPI_Win_post was not called");
  posted_ = false;  // also if a rank has failed: the window can be freed
  posted_ = !reach_->hear(Reach::Word::kCompleted, origins_, wait);
  return !posted_;
}

}  // namespace rondo_mpi
