#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

// Owns a file descriptor, opened with the CLOEXEC flag of its call. It is none of 0 to 2, even in a process that was
// started with these closed: whatever prints there would write to it.
class Descriptor {
 public:
  // What a forked child has of it. kClosed: a child that kept a listener would hold its port, and one that kept a
  // connection would hide the parent's death from the peer. get() still gives the old number there: the owner checks
  // first whether it was forked. kInherited: the child has its own copy.
  enum class InChild { kClosed, kInherited };

  Descriptor() = default;
  // Moves a number below 3, which leaves none (errno) where the process has no other. Closes it where there is no
  // memory, and throws std::bad_alloc.
  explicit Descriptor(int number, InChild in_child = InChild::kClosed);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
  uint64_t entry_ = 0;  // in the list of descriptors that a forked child closes; 0: inherited
};

// Which file a descriptor was of when this was made.
class FileIdentity {
 public:
  explicit FileIdentity(int fd);
  // The number may be closed now, or that of another file.
  bool is_of(int fd) const;

 private:
  uint64_t device_ = 0, inode_ = 0;
  uint32_t kind_ = 0;
};

// Each of them, closed in a forked child. Where there is no memory all are closed, and std::bad_alloc is thrown.
std::vector<Descriptor> own_all(std::span<const int> numbers);

}  // namespace rondo
