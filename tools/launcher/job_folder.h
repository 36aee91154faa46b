#pragma once

#include <string>

namespace rondo::launcher {

// A folder of mode 0700 for the job's sockets, removed with all that is in it at the end.
class JobFolder {
 public:
  // Under TMPDIR if a socket's address there is short enough, else under /tmp. Throws std::system_error.
  JobFolder();
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace rondo::launcher
