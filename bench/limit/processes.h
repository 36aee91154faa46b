#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace rondo::bench {

// Memory that processes forked later share with this one; zeroed.
class SharedArea {
 public:
  // Throws Exception(kSystem).
  explicit SharedArea(uint64_t bytes);
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;
  ~SharedArea();
  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  uint64_t bytes_;
  void* memory_;
};

// What the ranks of a measurement tell each other. Counts only grow: meeting number n is over when `arrived` has
// reached n * world.
struct Meeting {
  std::atomic<uint64_t> arrived{0};
  std::atomic<bool> failed{false};  // a rank gave up: none waits for it
  std::atomic<uint64_t> enough{0};  // set by rank 0: behind meeting number n there is no further batch
  // The slowest times of batches with even and with odd numbers: rank 0 takes one while the next batch is under way.
  std::atomic<double> slowest_us[2] = {0, 0};
  std::atomic<double> result_us{0};
  char error[240] = {};  // of a rank that failed
};

// One rank of a measurement, a process of its own. Everything blocks with a deadline of ten seconds, and throws
// Exception(kSystem). Collective: all ranks make the same calls.
class Measurer {
 public:
  Measurer(int rank, int world, Meeting& meeting);

  int rank() const { return rank_; }
  int world() const { return world_; }
  bool crowded() const { return world_ > cores_; }  // more ranks than cores

  void meet();
  // Batches for so long, after one that warms up: a quantile of the slowest rank's times, the same on all ranks.
  double batch_us(double seconds, double quantile_wanted, const std::function<void()>& batch);

 private:
  // Between two looks at a counter; vain: looks so far. A rank with a core of its own returns at once.
  void wait_a_little(uint32_t vain) const;

  int rank_, world_, cores_;  // cores: usable_cores()
  Meeting& meeting_;
  // Meetings of this rank so far; equal on all ranks between two of them.
  uint64_t meetings_ = 0;
};

// Runs body in `world` processes forked from this one, so call it before this process has threads. Each has its share
// of the cores for itself, where there are enough. They end with this process. Throws Exception(kSystem) with the
// message of a rank that failed.
void run_in_processes(int world, const std::function<void(Measurer&)>& body);

// Cores that this process may use, at least 1.
int usable_cores();

// Seconds of the monotonic clock.
double raw_seconds();

}  // namespace rondo::bench
