#include "mpi/core/window.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/fold.h"
#include "mpi/core/type.h"

namespace rondo_mpi {
namespace {

constexpr int kExclusive = -1, kShared = 1, kFree = 0, kUnchecked = 2;  // in held_; the first three in `locked`, too
constexpr size_t kLine = 64, kPage = 4096;
constexpr MPI_Count kMostBytes = 1 << 30;  // of one copy by the kernel, which takes less than 2 GiB
constexpr size_t kMostRuns = 1024;         // IOV_MAX
// A wait for another rank polls for some microseconds, as long as a free core takes to let go of a lock; yields, since
// there may be more ranks than cores; then sleeps, and looks every 4 ms or so whether a rank has died.
constexpr int kPolls = 200, kYields = 1000, kPausesPerLook = 64;
constexpr std::chrono::microseconds kPause{50};

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The one named type that a type is made of; null: it is of none.
std::shared_ptr<const Type> basic_of(const Type& type) {
  if (type.basic != Basic::kNone) return type.shared_from_this();
  std::shared_ptr<const Type> found;
  for (const Piece& piece : type.pieces) {
    if (piece.count == 0 || piece.type->size == 0) continue;
    const auto one = basic_of(*piece.type);
    require(found == nullptr || one == found, MPI_ERR_TYPE, "the datatype is made of several named ones");
    found = one;
  }
  return found;
}

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
  require(size >= 0, MPI_ERR_SIZE, "the size of a window is negative");
  require(unit > 0, MPI_ERR_DISP, "the displacement unit is not positive");
  std::shared_ptr<Window> window(new Window(comm));
  window->flavor = flavor;
  window->size = size;
  window->unit = static_cast<int>(unit);
  window->meet(base);
  window->map(adjacent);
  if (flavor == MPI_WIN_FLAVOR_CREATE || flavor == MPI_WIN_FLAVOR_DYNAMIC) window->try_peers();
  return window;
}

Window::Window(const Comm& comm)
    : comm_(duplicate(comm)),
      peers_(comm.members.size()),
      held_(peers_.size(), kFree),
      seen_posted_(peers_.size()),
      seen_completed_(peers_.size()) {}

Window::~Window() {
  if (segment_ != nullptr) munmap(segment_, segment_bytes_);
}

void Window::close() {
  require(!all_held_ && std::all_of(held_.begin(), held_.end(), [](int how) { return how == kFree; }), MPI_ERR_RMA_SYNC,
          "the window is locked");
  comm_->engine->barrier();
}

void Window::meet(void* base) {
  require(comm_->size() == 1 || comm_->engine->topology().one_island(), MPI_ERR_UNSUPPORTED_OPERATION,
          "not all ranks share memory, as those of one host do: Rondo has no other windows");
  const int64_t own[4] = {reinterpret_cast<int64_t>(base), size, unit, getpid()};
  std::vector<int64_t> all(4 * peers_.size());
  comm_->engine->all_gather(own, all);
  for (size_t r = 0; r < peers_.size(); ++r) {
    const int64_t* from = &all[4 * r];
    peers_[r] = {reinterpret_cast<std::byte*>(from[0]), nullptr, from[1], from[2], static_cast<pid_t>(from[3])};
  }
  if (flavor == MPI_WIN_FLAVOR_CREATE) peers_[static_cast<size_t>(comm_->rank)].mapped = static_cast<std::byte*>(base);
}

size_t Window::control_bytes() const {
  return round_up(sizeof(Control) + 2 * peers_.size() * sizeof(std::atomic<uint32_t>), kLine);
}
Window::Control& Window::control(int rank) const {
  return *reinterpret_cast<Control*>(segment_ + static_cast<size_t>(rank) * control_bytes());
}
std::atomic<uint32_t>& Window::told(Told what, int from, int to) const {
  auto* counts = reinterpret_cast<std::atomic<uint32_t>*>(&control(to) + 1);
  return counts[2 * static_cast<size_t>(from) + static_cast<size_t>(what)];
}

// Rank 0 makes a segment of memory; the others find it among that process's descriptors.
void Window::map(bool adjacent) {
  const bool allocates = flavor == MPI_WIN_FLAVOR_ALLOCATE || flavor == MPI_WIN_FLAVOR_SHARED;
  const size_t apart = adjacent ? 1 : flavor == MPI_WIN_FLAVOR_SHARED ? kPage : kLine;
  std::vector<size_t> begins;
  segment_bytes_ = round_up(peers_.size() * control_bytes(), kPage);
  for (const Peer& peer : peers_) {
    begins.push_back(segment_bytes_);
    if (allocates) segment_bytes_ = round_up(segment_bytes_ + static_cast<size_t>(peer.size), apart);
  }
  int made[2] = {-1, 0};  // descriptor, errno
  if (comm_->rank == 0) {
    made[0] = memfd_create("rondo-window", MFD_CLOEXEC);
    if (made[0] < 0 || ftruncate(made[0], static_cast<off_t>(segment_bytes_)) != 0) made[1] = errno;
  }
  comm_->engine->broadcast(made, 0);
  int file = made[0], error = made[1];
  if (error == 0 && comm_->rank != 0) {
    const std::string path = "/proc/" + std::to_string(peers_[0].pid) + "/fd/" + std::to_string(made[0]);
    file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) error = errno;
  }
  if (error == 0) {
    void* memory = mmap(nullptr, segment_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
      error = errno;
    } else {
      segment_ = static_cast<std::byte*>(memory);
    }
  }
  const std::vector<int> errors = all_gather(*comm_, {error});
  if (file >= 0) ::close(file);
  const auto bad = std::find_if(errors.begin(), errors.end(), [](int one) { return one != 0; });
  if (bad != errors.end()) {
    fail(MPI_ERR_NO_MEM, "rank " + std::to_string(bad - errors.begin()) +
                             " cannot map memory that the window's ranks " + "share: " + std::strerror(*bad));
  }
  for (size_t r = 0; allocates && r < peers_.size(); ++r) peers_[r].mapped = segment_ + begins[r];
}

// Whether the kernel lets each read and write the others' memory.
void Window::try_peers() {
  uint64_t nonce = reinterpret_cast<uint64_t>(this) * 2 + 1;
  const uint64_t own[2] = {reinterpret_cast<uint64_t>(&nonce), nonce};
  std::vector<uint64_t> all(2 * peers_.size());
  comm_->engine->all_gather(own, all);
  int refused = 0;
  for (size_t r = 0; r < peers_.size() && refused == 0; ++r) {
    uint64_t found = 0;
    const iovec here{&found, sizeof found}, there{reinterpret_cast<void*>(all[2 * r]), sizeof found};
    if (process_vm_readv(peers_[r].pid, &here, 1, &there, 1, 0) != sizeof found) refused = errno;
    if (refused == 0 && found != all[2 * r + 1]) refused = ESRCH;
  }
  const std::vector<int> all_refused = all_gather(*comm_, {refused});  // after it the nonce may go
  const auto bad = std::find_if(all_refused.begin(), all_refused.end(), [](int one) { return one != 0; });
  if (bad == all_refused.end()) return;
  fail(MPI_ERR_UNSUPPORTED_OPERATION,
       std::string("not all ranks may read each other's memory (process_vm_readv: ") + std::strerror(*bad) +
           "; kernel.yama.ptrace_scope, or a container without SYS_PTRACE?): allocate it by MPI_Win_allocate");
}

Window::Part Window::part(int rank) const {
  const Peer& of = peers_[static_cast<size_t>(rank)];
  return {of.mapped, of.size, of.unit};
}

// --- Data

Window::Peer& Window::peer(int target) {
  require(target >= 0 && target < comm_->size(), MPI_ERR_RANK, "the target is no rank of the window");
  return peers_[static_cast<size_t>(target)];
}

// Bytes from the base of the target's memory to the place, which lies in it.
MPI_Aint Window::offset_of(const Place& place) {
  const Peer& there = peer(place.target);
  const Type& type = *place.type;
  const MPI_Aint begin = place.displacement * there.unit;
  if (flavor == MPI_WIN_FLAVOR_DYNAMIC || place.count == 0 || type.size == 0) return begin;
  const MPI_Aint last = (place.count - 1) * type.extent();
  require(begin + type.true_lb + std::min<MPI_Aint>(last, 0) >= 0 &&
              begin + type.true_ub + std::max<MPI_Aint>(last, 0) <= there.size,
          MPI_ERR_RMA_RANGE, "the data lies outside the target's window");
  return begin;
}

// Between `local`, one element after the other, and the place.
void Window::move(bool write, const Place& place, std::byte* local) {
  const MPI_Aint begin = offset_of(place);
  const Peer& there = peer(place.target);
  const Type& type = *place.type;
  if (place.count == 0 || type.size == 0) return;
  if (there.mapped != nullptr) {
    auto copy = [&](std::byte* at, MPI_Count bytes) {
      std::memmove(write ? at : local, write ? local : at, static_cast<size_t>(bytes));
      local += bytes;
      return true;
    };
    for_runs(type, there.mapped + begin, place.count, copy);
    return;
  }
  std::vector<iovec> runs;
  MPI_Count bytes = 0;
  const auto go = [&] {
    const iovec here{local, static_cast<size_t>(bytes)};
    const ssize_t moved = write ? process_vm_writev(there.pid, &here, 1, runs.data(), runs.size(), 0)
                                : process_vm_readv(there.pid, &here, 1, runs.data(), runs.size(), 0);
    if (moved != bytes) {
      fail(MPI_ERR_RMA_RANGE, "the kernel cannot copy memory of rank " + std::to_string(place.target) + ": " +
                                  (moved < 0 ? std::strerror(errno) : "a part of it is not there"));
    }
    local += bytes;
    bytes = 0;
    runs.clear();
  };
  auto add = [&](std::byte* at, MPI_Count left) {
    while (left > 0) {
      const MPI_Count now = std::min(left, kMostBytes - bytes);
      runs.push_back({at, static_cast<size_t>(now)});
      bytes += now;
      at += now;
      left -= now;
      if (runs.size() == kMostRuns || bytes == kMostBytes) go();
    }
    return true;
  };
  for_runs(type, reinterpret_cast<std::byte*>(reinterpret_cast<intptr_t>(there.base) + begin), place.count, add);
  if (bytes > 0) go();
}

void Window::put(const Data& origin, const Place& to) {
  if (to.target == MPI_PROC_NULL) return;
  require(origin.bytes() == to.count * to.type->size, MPI_ERR_TYPE, "origin and target differ in length");
  std::vector<std::byte> room;
  move(true, to, packed(origin, room));
}

void Window::get(const Data& origin, const Place& from) {
  if (from.target == MPI_PROC_NULL) return;
  require(origin.bytes() == from.count * from.type->size, MPI_ERR_TYPE, "origin and target differ in length");
  if (origin.type->dense) return move(false, from, static_cast<std::byte*>(origin.data));
  std::vector<std::byte> room(static_cast<size_t>(origin.bytes()));
  move(false, from, room.data());
  unpack(*origin.type, origin.data, origin.count, room.data(), origin.bytes());
}

// One rank at a time updates the memory of a target.
class Window::Update {
 public:
  Update(const Window& window, int target) : updated_(window.control(target).updated) {
    window.await([&] { return updated_.exchange(1, std::memory_order_acquire) == 0; });
  }
  Update(const Update&) = delete;
  ~Update() { updated_.store(0, std::memory_order_release); }

 private:
  std::atomic<uint32_t>& updated_;
};

void Window::accumulate(const Data& origin, const Data& result, const Place& at, const Op& op) {
  require(!op.user(), MPI_ERR_OP, "an operation of the program's does not accumulate");
  if (at.target == MPI_PROC_NULL) return;
  peer(at.target);
  const MPI_Count bytes = at.count * at.type->size;
  if (bytes == 0) return;
  const std::shared_ptr<const Type> basic = basic_of(*at.type);
  check_fold(op, *basic);
  const bool changes = op.handle != MPI_NO_OP;
  require(!changes || origin.bytes() == bytes, MPI_ERR_TYPE, "origin and target differ in length");
  std::vector<std::byte> room, before;
  std::byte* in = changes ? packed(origin, room) : nullptr;
  std::byte* there = peer(at.target).mapped;
  if (there != nullptr) there += offset_of(at);
  const bool aligned = reinterpret_cast<uintptr_t>(there) % static_cast<size_t>(basic->alignment) == 0;
  {
    const Update update(*this, at.target);
    if (result.count > 0) {
      before.resize(static_cast<size_t>(bytes));
      move(false, at, before.data());
    }
    if (op.handle == MPI_REPLACE) {
      move(true, at, in);
    } else if (changes && there != nullptr && aligned && at.type->dense && basic->dense) {
      fold(op, basic, in, there, bytes / basic->size);
    } else if (changes) {
      std::vector<std::byte> sum = before;
      if (result.count == 0) {
        sum.resize(static_cast<size_t>(bytes));
        move(false, at, sum.data());
      }
      fold_packed(op, basic, in, sum.data(), bytes / basic->size);
      move(true, at, sum.data());
    }
  }
  if (result.count > 0) unpack(*result.type, result.data, result.count, before.data(), bytes);
}

void Window::compare_and_swap(const void* origin, const void* compare, void* result, const Place& at) {
  if (at.target == MPI_PROC_NULL) return;
  peer(at.target);
  const auto bytes = static_cast<size_t>(at.type->size);
  std::vector<std::byte> there(bytes), swapped(bytes);
  std::memcpy(swapped.data(), origin, bytes);
  {
    const Update update(*this, at.target);
    move(false, at, there.data());
    if (std::memcmp(there.data(), compare, bytes) == 0) move(true, at, swapped.data());
  }
  std::memcpy(result, there.data(), bytes);
}

// --- Synchronization

void Window::await(const std::function<bool()>& over) const {
  for (int turn = 0; !over(); ++turn) {
    if (turn < kPolls) continue;
    if (turn < kYields) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(kPause);
    if (turn % kPausesPerLook != 0) continue;
    if (const auto error = comm_->engine->error())
      throw rondo::Exception(*error);  // a rank that it waits for may be dead
  }
}

void Window::fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  comm_->engine->barrier();
}
void Window::flush(int target) {
  if (target != MPI_PROC_NULL) peer(target);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Window::take(int target, bool exclusive) {
  std::atomic<int>& locked = control(target).locked;
  await([&] {
    int now = locked.load(std::memory_order_relaxed);
    if (exclusive ? now != kFree : now == kExclusive) return false;
    return locked.compare_exchange_strong(now, exclusive ? kExclusive : now + 1, std::memory_order_acq_rel);
  });
}
void Window::let_go(int target) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const int how = std::exchange(held_[static_cast<size_t>(target)], kFree);
  if (how != kUnchecked) control(target).locked.fetch_sub(how, std::memory_order_acq_rel);
}

void Window::lock(int type, int target, bool checked) {
  require(type == MPI_LOCK_SHARED || type == MPI_LOCK_EXCLUSIVE, MPI_ERR_LOCKTYPE, "there is no such kind of lock");
  if (target == MPI_PROC_NULL) return;
  peer(target);
  int& how = held_[static_cast<size_t>(target)];
  require(how == kFree && !all_held_ && !started_, MPI_ERR_RMA_SYNC, "this rank has an access epoch already");
  const bool exclusive = type == MPI_LOCK_EXCLUSIVE;
  if (checked) take(target, exclusive);
  how = !checked ? kUnchecked : exclusive ? kExclusive : kShared;
}
void Window::unlock(int target) {
  if (target == MPI_PROC_NULL) return;
  peer(target);
  require(held_[static_cast<size_t>(target)] != kFree && !all_held_, MPI_ERR_RMA_SYNC, "the target is not locked");
  let_go(target);
}
void Window::lock_all(bool checked) {
  require(!all_held_ && !started_ && std::all_of(held_.begin(), held_.end(), [](int how) { return how == kFree; }),
          MPI_ERR_RMA_SYNC, "this rank has an access epoch already");
  for (int target = 0; target < comm_->size(); ++target) {
    if (checked) take(target, false);
    held_[static_cast<size_t>(target)] = checked ? kShared : kUnchecked;
  }
  all_held_ = true;
}
void Window::unlock_all() {
  require(all_held_, MPI_ERR_RMA_SYNC, "MPI_Win_lock_all was not called");
  for (int target = 0; target < comm_->size(); ++target) let_go(target);
  all_held_ = false;
}

void Window::post(const std::vector<int>& origins) {
  require(!posted_, MPI_ERR_RMA_SYNC, "an exposure epoch is open already");
  posted_ = true;
  origins_ = origins;
  for (const int origin : origins_) ++told(Told::kPosted, comm_->rank, origin);
}
void Window::start(const std::vector<int>& targets) {
  require(!started_ && !all_held_, MPI_ERR_RMA_SYNC, "this rank has an access epoch already");
  started_ = true;
  targets_ = targets;
  for (const int target : targets_) {
    uint32_t& seen = seen_posted_[static_cast<size_t>(target)];
    await([&] { return told(Told::kPosted, target, comm_->rank) != seen; });
    ++seen;
  }
}
void Window::complete() {
  require(started_, MPI_ERR_RMA_SYNC, "MPI_Win_start was not called");
  started_ = false;
  for (const int target : targets_) ++told(Told::kCompleted, comm_->rank, target);
}
bool Window::done(bool wait) {
  require(posted_, MPI_ERR_RMA_SYNC, "MPI_Win_post was not called");
  const auto over = [&] {
    return std::all_of(origins_.begin(), origins_.end(), [&](int origin) {
      return told(Told::kCompleted, origin, comm_->rank) != seen_completed_[static_cast<size_t>(origin)];
    });
  };
  if (wait) await(over);
  if (!wait && !over()) return false;
  for (const int origin : origins_) ++seen_completed_[static_cast<size_t>(origin)];
  posted_ = false;
  return true;
}

}  // namespace rondo_mpi
