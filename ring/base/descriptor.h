#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

// Owns a file descriptor, opened with the CLOEXEC flag of its call. It is none of 0 to 2, even in a process that was
// started with these closed: whatever prints there would write to it.
class Descriptor {
 public:
  // What a forked child has of it.
  //
  // kClosed: nothing. A child that kept a listener would hold its port, and one that kept a connection would
  // hide the parent's death from the peer. get() still returns the old number in the child, so an owner checks
  // first whether it was forked. kInherited: the child has its own copy.
  enum class InChild { kClosed, kInherited };

  Descriptor() = default;
  // Owns a number that is open already. Only for a thread that knows that no other one forks: a child that is
  // forked in between keeps it. A number below 3 is moved; errno says why there is none if the process has no
  // other. Without memory it is closed, and std::bad_alloc is thrown.
  explicit Descriptor(int number, InChild in_child = InChild::kClosed);
  // Owns what `open` returns: a system call that must not block, since a fork waits until the number is known.
  template <std::invocable Open>
  explicit Descriptor(Open open, InChild in_child = InChild::kClosed) : Descriptor() {
    const NoFork no_fork;
    take(open(), in_child);
  }
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset();

 private:
  template <typename Open>
  friend std::vector<Descriptor> own_all(size_t most, Open open);
  // While it lives no thread of the process forks. A thread must not have two.
  struct NoFork {
    NoFork();
    ~NoFork();
    NoFork(const NoFork&) = delete;
    NoFork& operator=(const NoFork&) = delete;
  };
  void take(int number, InChild in_child);
  static void take_all(std::span<const int> numbers, std::vector<Descriptor>& owned);

  int fd_ = -1;
  uint64_t entry_ = 0;  // in the list of descriptors that a forked child closes; 0: inherited
};

// Remembers which file a descriptor was of.
class FileIdentity {
 public:
  explicit FileIdentity(int fd);
  // Whether that number is of this file now: it may have been closed, and be another file's.
  bool is_of(int fd) const;

 private:
  uint64_t device_ = 0, inode_ = 0;
  uint32_t kind_ = 0;
};

// Owns all numbers, at most `most`, that `open` returns after a system call that does not block. They are
// closed in a forked child. Without memory all of them are closed, and std::bad_alloc is thrown.
template <typename Open>
std::vector<Descriptor> own_all(size_t most, Open open) {
  std::vector<Descriptor> owned(most);  // before the lock: what is closed where something throws takes it, too
  const Descriptor::NoFork no_fork;
  Descriptor::take_all(open(), owned);
  return owned;
}

}  // namespace rondo
