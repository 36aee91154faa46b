#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/simulation/job.h"

// Private to Job.

namespace rondo::testing::sim {

struct Job::Buffer {
  static constexpr int64_t kUntouched = 0x5a5a5a5a5a5a5a5a;
  std::vector<int64_t> values;
  bool over = false;  // all are kUntouched, and stay so
};

class Job::Lent {
 public:
  explicit Lent(Buffer& buffer) : buffer_(buffer) {}
  Lent(const Lent&) = delete;
  ~Lent() {
    std::fill(buffer_.values.begin(), buffer_.values.end(), Buffer::kUntouched);
    buffer_.over = true;
  }

 private:
  Buffer& buffer_;
};

// A process.
struct Job::Life {
  int64_t number = 0;
  int rank = -1;  // -1: a newcomer
  Process* process = nullptr;
  Time began = 0;
  bool joined = false;
  bool entered = false;  // the epoch of its communicator
  uint64_t epoch = 0;
  std::vector<int64_t> members;  // of that: numbers of lives
  std::vector<std::unique_ptr<Buffer>> buffers;
  Time went_on = 0;    // from the last fault to the first step behind it; 0: not yet
  bool ended = false;  // by itself
};

}  // namespace rondo::testing::sim
