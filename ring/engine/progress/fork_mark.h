#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include "rondo/error.h"

namespace rondo {

// Tells a process from its forked children at the cost of one load: a page that the kernel wipes in the child.
// (getpid() is a system call: 0.1 us on hardware, 1 us in some virtual machines.)
class ForkMark {
 public:
  ForkMark() : page_(mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (page_ == MAP_FAILED || madvise(page_, bytes(), MADV_WIPEONFORK) != 0) {
      throw Exception(ErrorCode::kSystem, "a page of memory that is wiped by fork could not be had");
    }
    *static_cast<volatile char*>(page_) = 1;
  }
  ~ForkMark() { munmap(page_, bytes()); }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // False in a child made by fork after this object was made.
  bool same_process() const { return *static_cast<const volatile char*>(page_) == 1; }

 private:
  static size_t bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  void* page_;
};

}  // namespace rondo
