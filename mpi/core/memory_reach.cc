#include "mpi/core/memory_reach.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "mpi/core/agreement.h"
#include "mpi/core/errors.h"
#include "mpi/core/fold.h"
#include "mpi/core/type.h"

namespace rondo_mpi {
namespace {

constexpr int kExclusive = -1, kFree = 0;  // in `locked`
constexpr size_t kLine = 64, kPage = 4096;
constexpr MPI_Count kMostBytes = 1 << 30;  // of one copy by the kernel, which takes less than 2 GiB
constexpr size_t kMostRuns = 1024;         // IOV_MAX
// Less a page than a file can have, so rounding up does not overflow.
constexpr MPI_Aint kMostSegment = std::numeric_limits<off_t>::max() - MPI_Aint{kPage};
// A wait for another rank polls for some microseconds, as long as a free core takes to let go of a lock; yields, since
// there may be more ranks than cores; then sleeps, and looks every 4 ms or so whether a rank has died.
constexpr int kPolls = 200, kYields = 1000, kPausesPerLook = 64;
constexpr std::chrono::microseconds kPause{50};
// A rank that wants a shared lock lets ranks go first that want it alone: ranks that share it in turns would else keep
// those out for ever. It does so for some milliseconds only, since ranks that hold locks of several others may wait in
// a ring.
constexpr int kTurnsBehind = kYields + 32;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

struct Descriptor {
  int number = -1;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

MemoryReach::MemoryReach(Comm& comm, const std::vector<Peer>& peers)
    : comm_(comm), peers_(peers), mapped_(peers.size()) {}

// Delegates: then the destructor unmaps the segment also where this throws.
MemoryReach::MemoryReach(Comm& comm, int flavor, const std::vector<Peer>& peers, bool adjacent)
    : MemoryReach(comm, peers) {
  for (auto& heard : heard_) heard.resize(peers.size());
  map(flavor, adjacent);
  const auto own = static_cast<size_t>(comm.rank);
  if (flavor == MPI_WIN_FLAVOR_CREATE) mapped_[own] = peers[own].base;
  if (flavor == MPI_WIN_FLAVOR_CREATE || flavor == MPI_WIN_FLAVOR_DYNAMIC) try_peers();
}

MemoryReach::~MemoryReach() {
  if (segment_ != nullptr) munmap(segment_, segment_bytes_);
}

// Whole cache lines: ranks that wait for different targets do not slow each other down.
size_t MemoryReach::control_bytes() const {
  return round_up(sizeof(Control) + 2 * peers_.size() * sizeof(std::atomic<uint32_t>), kLine);
}
MemoryReach::Control& MemoryReach::control(int rank) const {
  return *reinterpret_cast<Control*>(segment_ + static_cast<size_t>(rank) * control_bytes());
}
std::atomic<uint32_t>& MemoryReach::told(Word what, int from, int to) const {
  auto* counts = reinterpret_cast<std::atomic<uint32_t>*>(&control(to) + 1);
  return counts[2 * static_cast<size_t>(from) + static_cast<size_t>(what)];
}

// Rank 0 makes a segment of memory. The others find it among that process's descriptors, so it needs no name that a
// crash would leave behind. Where each rank's part begins follows from the sizes that all have exchanged: control
// blocks first, then the memory of rank 0, 1, ...
void MemoryReach::map(int flavor, bool adjacent) {
  const bool allocates = flavor == MPI_WIN_FLAVOR_ALLOCATE || flavor == MPI_WIN_FLAVOR_SHARED;
  // MPI_Win_allocate_shared() gives one piece unless alloc_shared_noncontig is set: then each rank's memory begins on a
  // page, so the system can place it near that rank's core. Else a cache line keeps ranks apart.
  const size_t apart = adjacent ? 1 : flavor == MPI_WIN_FLAVOR_SHARED ? kPage : kLine;
  std::vector<size_t> begins;
  segment_bytes_ = round_up(peers_.size() * control_bytes(), kPage);
  for (const Peer& peer : peers_) {
    begins.push_back(segment_bytes_);
    require(!allocates || peer.size <= kMostSegment - static_cast<MPI_Aint>(segment_bytes_), MPI_ERR_NO_MEM,
            "the memory of all ranks of the window is more than any file has");
    if (allocates) segment_bytes_ = round_up(segment_bytes_ + static_cast<size_t>(peer.size), apart);
  }
  const auto check = [](bool done) {
    if (!done)
      fail(MPI_ERR_NO_MEM, std::string("cannot map memory that the window's ranks share: ") + std::strerror(errno));
  };
  Descriptor file;  // open until all have opened it
  agree(comm_, [&] {
    if (comm_.rank != 0) return;
    file.number = memfd_create("rondo-window", MFD_CLOEXEC);
    check(file.number >= 0 && ftruncate(file.number, static_cast<off_t>(segment_bytes_)) == 0);
  });
  int first[1] = {file.number};
  comm_.engine->broadcast(first, 0);
  agree(comm_, [&] {
    if (comm_.rank != 0) {
      const std::string path = "/proc/" + std::to_string(peers_[0].pid) + "/fd/" + std::to_string(first[0]);
      file.number = open(path.c_str(), O_RDWR | O_CLOEXEC);
      check(file.number >= 0);
    }
    void* memory = mmap(nullptr, segment_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0);
    check(memory != MAP_FAILED);
    segment_ = static_cast<std::byte*>(memory);
  });
  for (size_t r = 0; allocates && r < peers_.size(); ++r) mapped_[r] = segment_ + begins[r];
}

// Whether the kernel lets each read and write the others' memory. The nonce proves that a copy came from the peer and
// not from another process with its number. All ranks throw if one is refused: they must agree on what serves the
// window.
void MemoryReach::try_peers() {
  uint64_t nonce = reinterpret_cast<uint64_t>(this) * 2 + 1;
  const uint64_t own[2] = {reinterpret_cast<uint64_t>(&nonce), nonce};
  std::vector<uint64_t> all(2 * peers_.size());
  comm_.engine->all_gather(own, all);
  agree(comm_, [&] {  // after which the nonce may go
    for (size_t r = 0; r < peers_.size(); ++r) {
      uint64_t found = 0;
      const iovec here{&found, sizeof found}, there{reinterpret_cast<void*>(all[2 * r]), sizeof found};
      const bool read = process_vm_readv(peers_[r].pid, &here, 1, &there, 1, 0) == sizeof found;
      if (read && found == all[2 * r + 1]) continue;
      fail(MPI_ERR_UNSUPPORTED_OPERATION,
           "rank " + std::to_string(r) +
               "'s memory cannot be read (process_vm_readv: " + std::strerror(read ? ESRCH : errno) +
               "; kernel.yama.ptrace_scope, or a container without SYS_PTRACE?): allocate it by MPI_Win_allocate");
    }
  });
}

// Between `local`, one element after the other, and the place.
void MemoryReach::move(bool write, const Place& place, std::byte* local) {
  const Peer& there = peers_[static_cast<size_t>(place.rank)];
  if (std::byte* const mapped = memory(place.rank); mapped != nullptr) {
    auto copy = [&](std::byte* at, MPI_Count bytes) {
      std::memmove(write ? at : local, write ? local : at, static_cast<size_t>(bytes));
      local += bytes;
      return true;
    };
    for_runs(place.type, mapped + place.begin, place.count, copy);
    return;
  }
  std::vector<iovec> runs;
  MPI_Count bytes = 0;
  // One call of the kernel: at most kMostRuns runs and kMostBytes.
  const auto go = [&] {
    const iovec here{local, static_cast<size_t>(bytes)};
    const ssize_t moved = write ? process_vm_writev(there.pid, &here, 1, runs.data(), runs.size(), 0)
                                : process_vm_readv(there.pid, &here, 1, runs.data(), runs.size(), 0);
    // A short copy has moved the runs before the one that is not there.
    if (moved != bytes) {
      const bool ended = moved < 0 && errno == ESRCH;
      fail(ended ? kProcessFailed : MPI_ERR_RMA_RANGE,
           "the kernel cannot copy memory of rank " + std::to_string(place.rank) + ": " +
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
  for_runs(place.type, reinterpret_cast<std::byte*>(reinterpret_cast<intptr_t>(there.base) + place.begin), place.count,
           add);
  if (bytes > 0) go();
}

// One rank at a time updates the memory of a target. A spin lock in shared memory: where its holder dies, the others
// leave await() by the communicator's failure. Acquire and release: each update sees the one before.
class MemoryReach::Update {
 public:
  Update(const MemoryReach& reach, int rank) : updated_(reach.control(rank).updated) {
    reach.await([&] { return updated_.exchange(1, std::memory_order_acquire) == 0; });
  }
  Update(const Update&) = delete;
  ~Update() { updated_.store(0, std::memory_order_release); }

 private:
  std::atomic<uint32_t>& updated_;
};

// A put only reads its operand.
void MemoryReach::put(const Place& to, const std::byte* from) { move(true, to, const_cast<std::byte*>(from)); }
void MemoryReach::get(const Place& from, std::byte* to) { move(false, from, to); }

// All updates of a target exclude each other by its lock. Data is folded in place where it is mapped, aligned and
// dense. Else it is read, folded and written back. A function of the program is never called under the lock:
// Window::accumulate() refuses it.
void MemoryReach::update(const Place& at, const Op& op, const std::shared_ptr<const Type>& basic, const std::byte* in,
                         std::byte* before) {
  std::byte* there = memory(at.rank);
  if (there != nullptr) there += at.begin;
  const bool aligned = reinterpret_cast<uintptr_t>(there) % static_cast<size_t>(basic->alignment) == 0;
  const auto bytes = static_cast<size_t>(at.bytes());
  const MPI_Count elements = at.bytes() / basic->size;
  const Update update(*this, at.rank);
  if (before != nullptr) get(at, before);
  if (in == nullptr) return;
  if (op.handle == MPI_REPLACE) {
    put(at, in);
  } else if (there != nullptr && aligned && at.type.dense && basic->dense) {
    fold(op, basic, in, there, elements);
  } else {
    std::vector<std::byte> sum(bytes);
    if (before != nullptr) {
      std::memcpy(sum.data(), before, bytes);
    } else {
      get(at, sum.data());
    }
    fold_packed(op, basic, in, sum.data(), elements);
    put(at, sum.data());
  }
}

void MemoryReach::swap(const Place& at, const std::byte* in, const std::byte* compare, std::byte* before) {
  const Update update(*this, at.rank);
  get(at, before);
  if (std::memcmp(before, compare, static_cast<size_t>(at.bytes())) == 0) put(at, in);
}

void MemoryReach::await(const std::function<bool()>& over) const {
  for (int64_t turn = 0; !over(); ++turn) {  // an int would overflow after some days
    if (turn < kPolls) continue;
    if (turn < kYields) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(kPause);
    if (turn % kPausesPerLook != 0) continue;
    if (const auto error = comm_.engine->error())
      throw rondo::Exception(*error);  // a rank that it waits for may be dead
  }
}

// A rank wants a lock alone.
class MemoryReach::Wish {
 public:
  explicit Wish(Control& control) : wanted_(control.wanted) { wanted_.fetch_add(1, std::memory_order_relaxed); }
  Wish(const Wish&) = delete;
  ~Wish() { wanted_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t>& wanted_;
};

// A count in shared memory: the number of shared holders, or kExclusive. acq_rel: the rank that gets the lock sees what
// the last holder wrote.
void MemoryReach::lock(int rank, Lock how) {
  Control& there = control(rank);
  const bool alone = how == Lock::kExclusive;
  std::optional<Wish> wish;
  if (alone) wish.emplace(there);
  int64_t turn = 0;
  await([&] {
    if (!alone && there.wanted.load(std::memory_order_relaxed) > 0 && ++turn < kTurnsBehind) return false;
    int now = there.locked.load(std::memory_order_relaxed);
    if (alone ? now != kFree : now == kExclusive) return false;
    return there.locked.compare_exchange_strong(now, alone ? kExclusive : now + 1, std::memory_order_acq_rel);
  });
}
// Adds 1 for the one that had it alone: kExclusive is -1.
void MemoryReach::unlock(int rank, Lock how) {
  control(rank).locked.fetch_sub(how == Lock::kExclusive ? kExclusive : 1, std::memory_order_acq_rel);
}

// The increment is sequentially consistent and comes last: a rank that sees it also sees the accesses before it.
void MemoryReach::tell(Word what, const std::vector<int>& ranks) {
  for (const int rank : ranks) ++told(what, comm_.rank, rank);
}
// Counters only grow. Each side remembers how many events it has taken. A counter may wrap around: only whether it
// differs is asked.
bool MemoryReach::hear(Word what, const std::vector<int>& ranks, bool wait) {
  std::vector<uint32_t>& heard = heard_[static_cast<size_t>(what)];
  const auto over = [&] {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](int rank) { return told(what, rank, comm_.rank) != heard[static_cast<size_t>(rank)]; });
  };
  if (wait) await(over);
  if (!wait && !over()) return false;
  for (const int rank : ranks) ++heard[static_cast<size_t>(rank)];
  return true;
}

}  // namespace rondo_mpi
