#pragma once

#include <memory>

namespace rondo {

// Tells a process from its forked children at the cost of one load: a page that the kernel wipes in the child, or,
// where it does not know how (gVisor), a byte that a handler of fork() clears there. (getpid() is a system call: 0.1 us
// on hardware, 1 us in some virtual machines.) A copy is the same mark.
class ForkMark {
 public:
  // Throws Exception(kSystem).
  ForkMark();

  // False in a child made by fork after this object was made.
  bool same_process() const { return *mark_ == 1; }

 private:
  std::shared_ptr<void> page_;  // shared by the copies; null: there is no such page
  const volatile char* mark_;
};

}  // namespace rondo
