#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "ring/base/descriptor.h"
#include "tools/launcher/environment.h"

namespace rondo::launcher {

// How a process ended.
struct Ending {
  int code = 0;    // of exit(); 128 + signal if a signal killed it
  int signal = 0;  // 0: it exited by itself
  bool failed() const { return code != 0; }
};

// What a new rank inherits besides its environment.
struct SpawnSettings {
  sigset_t signal_mask;        // the launcher's own before it blocked any
  bool capture_output = true;  // pipes to the launcher; otherwise the launcher's own outputs
  bool keep_input = false;     // the launcher's standard input; otherwise /dev/null
};

// One rank: a child process that leads a process group of its own, and dies with this process.
// It is not reaped before the destructor, so that its process id, which names the group, cannot be given to a stranger.
class RankProcess {
 public:
  // Throws std::system_error if the program cannot be run; then there is no child.
  RankProcess(const std::vector<std::string>& command, const Environment& environment, const SpawnSettings& settings);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  // Kills the group with SIGKILL and waits for the rank.
  ~RankProcess();

  pid_t pid() const { return pid_; }
  // Non-blocking read ends; closed if the output is not captured.
  Descriptor& standard_output() { return output_; }
  Descriptor& standard_error() { return error_; }

  // Does not block. Once it has a value it keeps it.
  const std::optional<Ending>& ending();
  // To every process of the rank's group.
  void signal_group(int signal) const;

 private:
  pid_t pid_ = -1;
  Descriptor output_, error_;
  std::optional<Ending> ending_;
};

}  // namespace rondo::launcher
