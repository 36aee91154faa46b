#pragma once

#include <chrono>
#include <string>

#include "tests/support/temp_folder.h"
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

using Folder = testing::TempFolder;

}  // namespace rondo::test
