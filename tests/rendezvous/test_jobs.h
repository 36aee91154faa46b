#pragma once

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "transport/rendezvous/launch.h"

namespace rondo::test {

inline Store::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(10); }
inline Store::Deadline in_ms(int64_t ms) { return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); }

inline Launch launch(int rank, int world, const std::string& rendezvous, const std::string& job_id = "default") {
  Launch launch;
  launch.place = Place{rank, world, rank, world, 0, 1};
  launch.job_id = job_id;
  launch.rendezvous = rendezvous;
  launch.launcher = "program";
  launch.one_host = true;
  return launch;
}

// A folder of the test's own, removed with all that is in it.
class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/rondo-test-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace rondo::test
