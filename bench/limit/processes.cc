#include "bench/limit/processes.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <new>
#include <vector>

#include "bench/loop/statistics.h"
#include "ring/base/cores.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr timespec kLook{0, 5'000'000};  // at the children; seldom enough to disturb nothing
constexpr double kMeetSeconds = 10;      // processes may share a busy core; a lost one is seen by its parent

// The scheduler puts two processes that wake each other on one core now and then, for seconds: not what the machine can
// do. So each has an equal share of the cores for itself, for all of its threads, where there are enough.
void take_cores(int rank, int world) {
  const cpu_set_t allowed = allowed_cores();
  const int share = CPU_COUNT(&allowed) / world;
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int place = rank * share; place < (rank + 1) * share; ++place) CPU_SET(home_core(allowed, place), &own);
  if (CPU_COUNT(&own) > 0) sched_setaffinity(0, sizeof(own), &own);
}

// An atomic maximum.
void raise(std::atomic<double>& value, double to) {
  double before = value.load();
  while (before < to && !value.compare_exchange_weak(before, to)) {
  }
}

// Never returns into the parent's code: a copy of its stack must not run on. _exit leaves its buffers alone.
[[noreturn]] void run_child(int rank, int world, Meeting& meeting, const std::function<void(Measurer&)>& body) {
  try {
    Measurer measurer(rank, world, meeting);
    take_cores(rank, world);
    body(measurer);
    _exit(0);
  } catch (const std::exception& e) {
    // The first failure's message; those of ranks that waited for it in vain come later.
    if (!meeting.failed) std::strncpy(meeting.error, e.what(), sizeof(meeting.error) - 1);
    meeting.failed = true;
  }
  _exit(1);
}

}  // namespace

SharedArea::SharedArea(uint64_t bytes) : bytes_(bytes) {
  memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) {
    throw Exception(ErrorCode::kSystem, fmt::format("mapping shared memory: {}", std::strerror(errno)));
  }
}

SharedArea::~SharedArea() { munmap(memory_, bytes_); }

Measurer::Measurer(int rank, int world, Meeting& meeting)
    : rank_(rank), world_(world), cores_(usable_cores()), meeting_(meeting) {}

// acq_rel and acquire: who leaves sees what all have written before.
void Measurer::meet() {
  const uint64_t all = ++meetings_ * static_cast<uint64_t>(world_);
  meeting_.arrived.fetch_add(1, std::memory_order_acq_rel);
  const double deadline = raw_seconds() + kMeetSeconds;
  for (uint32_t vain = 1; meeting_.arrived.load(std::memory_order_acquire) < all; ++vain) {
    if (meeting_.failed.load(std::memory_order_relaxed) || raw_seconds() > deadline) {
      throw Exception(ErrorCode::kSystem, "a rank of the measurement ended or hangs");
    }
    wait_a_little(vain);
  }
}

// Beside a foreign busy process a yield lasts as long as that one's turn, some milliseconds; so a rank with a core
// spins.
void Measurer::wait_a_little(uint32_t vain) const {
  constexpr uint32_t kYields = 100;
  constexpr timespec kNap{0, 20'000};
  if (!crowded()) return;
  if (vain % kYields == 0) {
    nanosleep(&kNap, nullptr);
  } else {
    sched_yield();
  }
}

// All ranks run the same number of batches: rank 0 decides, and says so where they meet between two of them. On a busy
// host a batch may take a second, so time ends the measurement, not a count.
double Measurer::batch_us(double seconds, double quantile_wanted, const std::function<void()>& batch) {
  const double end = raw_seconds() + seconds;
  std::vector<double> all_us;
  for (uint64_t i = 0;; ++i) {
    meet();
    if (rank_ == 0 && i >= 2) all_us.push_back(meeting_.slowest_us[(i - 1) % 2].exchange(0));  // the first warms up
    if (rank_ == 0 && i == 1) meeting_.slowest_us[0] = 0;
    if (meeting_.enough.load(std::memory_order_acquire) == meetings_) break;
    const double start = raw_seconds();
    batch();
    const double stop = raw_seconds();
    raise(meeting_.slowest_us[i % 2], (stop - start) * 1e6);
    if (rank_ == 0 && stop > end && i >= 1) meeting_.enough.store(meetings_ + 1, std::memory_order_release);
  }
  if (rank_ == 0) meeting_.result_us = quantile(all_us, quantile_wanted);
  meet();
  return meeting_.result_us;
}

// PR_SET_PDEATHSIG: ranks that spin do not outlive an interrupted benchmark.
void run_in_processes(int world, const std::function<void(Measurer&)>& body) {
  const SharedArea area(sizeof(Meeting));
  Meeting& meeting = *new (area.get()) Meeting();
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t pid = fork();
    if (pid > 0) children.push_back(pid);
    if (pid < 0) meeting.failed = true;
    if (pid != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have ended before prctl() took effect.
    if (getppid() != parent) _exit(1);
    run_child(rank, world, meeting, body);
  }
  bool worked = static_cast<int>(children.size()) == world;
  while (!children.empty()) {
    std::erase_if(children, [&](pid_t pid) {
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) != pid) return false;
      if (status != 0) worked = false;
      return true;
    });
    if (!worked) meeting.failed = true;
    nanosleep(&kLook, nullptr);
  }
  if (worked) return;
  const char* why = meeting.error[0] != 0 ? meeting.error : "a process could not be started or was ended";
  throw Exception(ErrorCode::kSystem, fmt::format("measuring this machine: {}", why));
}

int usable_cores() {
  const cpu_set_t allowed = allowed_cores();
  return std::max(1, CPU_COUNT(&allowed));
}

double raw_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace rondo::bench
