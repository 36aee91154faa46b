#include "bench/limit/fused_pass.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <vector>

#include "bench/loop/statistics.h"
#include "kernels/combine.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr int kPasses = 12;
constexpr int kWarmUps = 2;
constexpr double kMeetSeconds = 10;
using Clock = std::chrono::steady_clock;

struct Shared {
  std::atomic<int> arrived{0};  // only grows: pass number n is complete at n * world
  std::atomic<double> slowest_us[kPasses] = {};
};

// False if the others do not come: this process gives up.
bool meet(Shared& shared, int wanted) {
  shared.arrived.fetch_add(1);
  const auto deadline = Clock::now() + std::chrono::duration<double>(kMeetSeconds);
  while (shared.arrived.load() < wanted) {
    if (Clock::now() > deadline) return false;
    sched_yield();
  }
  return true;
}

void fold_share(std::byte* memory, int rank, int world, uint64_t bytes) {
  const uint64_t elements = bytes / sizeof(float);
  const uint64_t begin = elements * static_cast<uint64_t>(rank) / static_cast<uint64_t>(world);
  const uint64_t end = elements * static_cast<uint64_t>(rank + 1) / static_cast<uint64_t>(world);
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (int i = 0; i < world; ++i) {
    std::byte* const at = memory + static_cast<uint64_t>(i) * bytes + begin * sizeof(float);
    sources.push_back(at);
    targets.push_back(at);
  }
  const auto count = static_cast<uint8_t>(world);
  combine({DType::kFloat32, Op::kSum, 1.0, 1}, {sources.data(), targets.data(), 0, count, count, false}, end - begin);
}

bool run_passes(Shared& shared, std::byte* memory, int rank, int world, uint64_t bytes) {
  std::memset(memory + static_cast<uint64_t>(rank) * bytes, 0, bytes);
  for (int pass = 0; pass < kPasses; ++pass) {
    if (!meet(shared, (2 * pass + 1) * world)) return false;
    const Clock::time_point start = Clock::now();
    fold_share(memory, rank, world, bytes);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    std::atomic<double>& slowest = shared.slowest_us[pass];
    for (double before = slowest.load(); before < us && !slowest.compare_exchange_weak(before, us);) {
    }
    if (!meet(shared, (2 * pass + 2) * world)) return false;
  }
  return true;
}

// Shared by the processes forked later; unmapped at the end.
class Mapping {
 public:
  explicit Mapping(uint64_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) {
      throw Exception(ErrorCode::kSystem, fmt::format("mapping shared memory: {}", std::strerror(errno)));
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(memory_, bytes_); }
  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  uint64_t bytes_;
  void* memory_;
};

}  // namespace

double fused_pass_us(int world, uint64_t bytes) {
  const Mapping control(sizeof(Shared)), memory(bytes * static_cast<uint64_t>(world));
  auto* shared = new (control.get()) Shared();
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t pid = fork();
    if (pid > 0) children.push_back(pid);
    if (pid != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent && run_passes(*shared, memory.get(), rank, world, bytes) ? 0 : 1);
  }
  bool worked = static_cast<int>(children.size()) == world;
  for (pid_t pid : children) {
    int status = 0;
    worked = waitpid(pid, &status, 0) == pid && status == 0 && worked;
  }
  if (!worked) throw Exception(ErrorCode::kSystem, "the fused pass over shared memory could not be measured");
  std::vector<double> times;
  for (int pass = kWarmUps; pass < kPasses; ++pass) times.push_back(shared->slowest_us[pass]);
  return median(times);
}

}  // namespace rondo::bench
