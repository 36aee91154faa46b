#pragma once

#include <cstddef>

namespace rondo {

// Tells a process from its forked children at the cost of one load: a page that the kernel wipes in the child, or,
// where it does not know how (gVisor), a byte that a handler of fork() clears there. (getpid() is a system call: 0.1 us
// on hardware, 1 us in some virtual machines.)
class ForkMark {
 public:
  // Throws Exception(kSystem).
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // False in a child made by fork after this object was made.
  bool same_process() const { return *mark_ == 1; }

 private:
  void* page_;
  const volatile char* mark_;
};

}  // namespace rondo
