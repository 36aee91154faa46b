#pragma once

#include <string>

namespace rondo::launcher {

// How far the ranks' start is, as the store of rank 0 shows it.
enum class Start { kAhead, kUnderWay, kOver };

// A folder of mode 0700 for the job's sockets, removed with all that is in it at the end. Only this user can reach what
// is in it: sockets need no other protection.
class JobFolder {
 public:
  // Under TMPDIR if a socket's address there is short enough, else under /tmp. Throws std::system_error.
  JobFolder();
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::string& path() const { return path_; }
  // Where rank 0's store listens until all ranks have met: nothing else is in its folder.
  std::string store() const;
  // Any number of times, while the folder is there.
  Start start() const;

 private:
  std::string path_;
};

}  // namespace rondo::launcher
