#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "csrc/locked.h"

namespace rondo_torch {

// Barriers in torch's store, beside the communicator: one that fails names the ranks that did not come, and leaves the
// group as it was. Rank 0 collects the others and tells them. Any thread; the barriers of several follow each other.
class MonitoredBarriers {
 public:
  // prefix: of the keys, equal on the group's ranks and different from other groups'.
  MonitoredBarriers(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank, int size);

  // Throws DistBackendError: ranks did not come in time, or rank 0 did not, or another thread's barrier lasted so long.
  // every_rank: whether the message blames all absent ranks, or the first.
  void pass(std::chrono::milliseconds timeout, bool every_rank);

 private:
  using Clock = std::chrono::steady_clock;

  void collect(std::chrono::milliseconds timeout, bool every_rank);
  void report(std::chrono::milliseconds timeout);
  // Whether the key was there before the deadline, or is there now.
  bool await(const std::string& key, Clock::time_point deadline);
  // The store's key in a barrier: a rank's, or the result's.
  std::string key(int64_t number, const std::string& what) const;
  void forget(const std::string& key);

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  const int rank_, size_;
  Locked<bool> taken_;  // a thread is in pass(). The lock is not held there: a store may be written in Python
  int64_t number_ = 0;  // of this barrier
};

}  // namespace rondo_torch
