#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "tests/support/rank_group.h"

namespace rondo::testing {

// What this process says on standard error from here on.
class Said {
 public:
  Said() : file_(memfd_create("said", 0)) { dup2(file_, STDERR_FILENO); }
  std::string text() const {
    std::string text(static_cast<size_t>(lseek(file_, 0, SEEK_END)), '\0');
    expect(pread(file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()), "what was said is lost");
    return text;
  }

 private:
  int file_;
};

}  // namespace rondo::testing
