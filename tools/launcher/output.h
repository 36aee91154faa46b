#pragma once

#include <string>
#include <utility>

namespace rondo::launcher {

// One of this program's own outputs, shared by all ranks. Never blocks: what the reader has not taken yet is kept, and
// full() asks the caller to read no more from the ranks meanwhile. Whole lines are appended, so lines of different
// ranks do not mix.
class Output {
 public:
  // Held for a slow reader before the ranks' pipes are left to fill up.
  static constexpr size_t kMaxPendingBytes = 1 << 20;

  explicit Output(int fd) : fd_(fd) {}  // stays the caller's

  int fd() const { return fd_; }
  // Append here, then write().
  std::string& pending() { return pending_; }
  bool full() const { return pending_.size() - written_ >= kMaxPendingBytes; }
  bool wants_to_write() const { return !broken_ && written_ < pending_.size(); }
  // Nobody reads any more: what was pending is dropped.
  bool broken() const { return broken_; }
  // Why writing failed otherwise, as on a full disk, an errno; 0: it has not, or this has been asked before. What
  // cannot be written is dropped, and what comes later is tried again.
  int take_problem() { return std::exchange(problem_, 0); }
  // Writes while poll() says that the next write does not block.
  void write();

 private:
  void fail(int number);
  bool ready() const;

  int fd_;
  std::string pending_;
  size_t written_ = 0;  // bytes of pending_ already gone
  bool broken_ = false;
  int problem_ = 0;
  bool failed_before_ = false;
};

}  // namespace rondo::launcher
