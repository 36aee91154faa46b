#pragma once

#include <cstdint>

namespace rondo {

// Owns a file descriptor. Closed on exec by whoever opened it (SOCK_CLOEXEC, O_CLOEXEC), and closed in children made by
// fork by this class: a child that kept a listener would hold its port, and one that kept a connection would hide the
// parent's death from the peer. In such a child get() still gives the old number: check forked() of the owner first.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd);
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
  uint64_t entry_ = 0;  // in the list of descriptors that a forked child closes
};

}  // namespace rondo
