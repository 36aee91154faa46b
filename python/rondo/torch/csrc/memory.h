#pragma once

#include <rondo/rondo.h>

#include <cstddef>
#include <map>
#include <memory>

#include "csrc/forks.h"
#include "csrc/locked.h"

namespace rondo_torch {

// A communicator and the registered memory that tensors have from it. Tensors may outlive their group: the last block
// that goes after end() frees the communicator. Any thread.
class GroupMemory : public std::enable_shared_from_this<GroupMemory> {
 public:
  // Takes the communicator; null: it has ended already.
  explicit GroupMemory(rondo_comm_t comm) : comm_(comm) {
    state_.with([comm](State& state) { state.ended = comm == nullptr; });
  }
  GroupMemory(const GroupMemory&) = delete;
  GroupMemory& operator=(const GroupMemory&) = delete;

  // Zeroed, aligned to a page, and mapped by every rank of the host; freed with the last pointer. bytes: 1 or more.
  // After end(): DistBackendError.
  std::shared_ptr<void> allocate(size_t bytes);
  // The group has ended: says so to the other ranks. No call may be under way, and none may follow.
  void end();

 private:
  struct State {
    size_t blocks = 0;
    bool ended = false;   // nothing is allocated any more
    bool closed = false;  // the last block destroys the communicator
  };
  // One of State::blocks, from before its memory is there.
  class Allocation;

  const rondo_comm_t comm_;
  Locked<State> state_;
};

// A block of registered memory, cut into pieces. Freed when the last piece is given back. Any thread.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(const std::shared_ptr<GroupMemory>& memory, size_t bytes);

  // Aligned to 64 bytes, as torch's tensors are; its contents are undefined. Freed with the last pointer. Null where no
  // gap is large enough.
  std::shared_ptr<void> allocate(size_t bytes);
  size_t bytes() const { return bytes_; }
  // False in a forked child: its parent gives the same memory to others.
  bool usable() const { return forks_ == forks_so_far(); }

 private:
  // begin -> bytes; no two adjoin. Its nodes move between here and the pieces, so that giving back needs no memory.
  using Gaps = std::map<size_t, size_t>;
  class Piece;

  static bool cut(Gaps& gaps, size_t bytes, Gaps::node_type& piece);
  static void join(Gaps& gaps, Gaps::node_type piece);

  const std::shared_ptr<void> block_;
  const size_t bytes_;
  const int forks_ = forks_so_far();
  Locked<Gaps> gaps_;
};

}  // namespace rondo_torch
