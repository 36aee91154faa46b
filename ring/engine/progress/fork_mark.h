#pragma once

namespace rondo {

// Tells a process from its forked children at the cost of one load: of a byte that a handler of fork() clears in the
// child. (getpid() is a system call: 0.1 us on hardware, 1 us in some virtual machines.) A copy is the same mark. A
// child that was made without handlers, by a bare clone(), is not told apart.
class ForkMark {
 public:
  // Throws Exception(kSystem).
  ForkMark();

  // False in a child made by fork after this object was made.
  bool same_process() const { return *mark_ == 1; }

 private:
  const volatile char* mark_;  // the process's, which is never freed
};

}  // namespace rondo
