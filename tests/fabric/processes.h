#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/fabric/cluster.h"

namespace rondo::testing {

// A rank in a process of its own, made by fork from a process that has no other thread. It joins through a shared
// file, opens one communicator over all ranks, runs a body and leaves without destructors (_exit) when that returns.
class FabricProcess {
 public:
  using Say = std::function<void(const std::string& line)>;
  using Body = std::function<void(Member& member, const Say& say)>;

  FabricProcess(int rank, int world, const std::string& store_path, uint64_t id, const Config& config,
                const Body& body);
  ~FabricProcess();  // kills it if it still runs
  FabricProcess(FabricProcess&& other) noexcept;
  FabricProcess& operator=(FabricProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // The next line that it says; "" at its end or after `ms`.
  std::string hear(int ms = 10'000);
  void signal(int number) const;
  // Its exit code, or minus the signal that ended it.
  int wait();

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
  std::string heard_;
};

// A new folder, removed with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<FabricProcess> start_ranks(int world, const TempFolder& folder, uint64_t id,
                                       const FabricProcess::Body& body, const Config& config = test_config());

}  // namespace rondo::testing
