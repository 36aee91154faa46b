#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
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

// What a new child runs, and what it inherits. It must live until the child has become its program, which the
// constructor waits for.
struct ChildSettings {
  std::vector<std::string> command;
  Environment environment;
  // Instead of a command: the forked child calls it and exits with the result. The argument is its end of the control
  // pipe, or -1.
  std::function<int(int)> body;
  sigset_t signal_mask;        // the launcher's own before it blocked any
  bool capture_output = true;  // pipes to the launcher; otherwise the launcher's own outputs
  bool keep_input = false;     // the launcher's standard input; otherwise /dev/null
  // A pipe that the launcher writes to: a command's standard input. Its end tells the child that the launcher has
  // ended; a child without is killed by the kernel then.
  bool controlled = false;
};

// A child process that leads a process group of its own, and ends when this process does. It is not reaped before the
// destructor, so that its process id, which names the group, cannot be given to a stranger. One thread: the one that
// made it.
class ChildProcess {
 public:
  // Throws std::system_error if the program cannot be run; then there is no child. Returns when the program runs.
  explicit ChildProcess(const ChildSettings& settings);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills the group with SIGKILL and waits for the child.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Non-blocking read ends; closed if the output is not captured.
  Descriptor& standard_output() { return output_; }
  Descriptor& standard_error() { return error_; }
  // The write end of the control pipe; closed if there is none.
  Descriptor& control() { return control_; }

  // Does not block. Once it has a value it keeps it.
  const std::optional<Ending>& ending();
  // To every process of the child's group. A group that has ended is no error.
  void signal_group(int signal) const;

 private:
  // -1 after a move. Until the destructor it is a child or a zombie of this process.
  pid_t pid_ = -1;
  Descriptor output_, error_, control_;
  std::optional<Ending> ending_;
};

}  // namespace rondo::launcher
