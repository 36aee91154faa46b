#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>

namespace rondo::testing {

// Sets the soft limit of descriptors for a while.
class OpenFilesLimit {
 public:
  explicit OpenFilesLimit(size_t soft) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = soft;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~OpenFilesLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFilesLimit(const OpenFilesLimit&) = delete;
  OpenFilesLimit& operator=(const OpenFilesLimit&) = delete;
  // For so many more descriptors, if the free numbers have no holes.
  static size_t for_more(size_t more) {
    const int next = ::dup(STDIN_FILENO);
    ::close(next);
    return static_cast<size_t>(next) + more;
  }

 private:
  rlimit before_{};
};

}  // namespace rondo::testing
