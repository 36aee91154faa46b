#pragma once

#include <signal.h>

#include <optional>

#include "ring/base/descriptor.h"

namespace rondo::launcher {

// The signals that rondo-run handles, as something to poll: SIGCHLD, and those that it passes on (SIGINT, SIGTERM,
// SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT). Blocked from construction on. SIGPIPE is ignored. One object a process.
// Several arrivals of one signal may be one.
class Signals {
 public:
  Signals();

  int fd() const { return descriptor_.get(); }
  // What was blocked before, for the ranks.
  const sigset_t& original_mask() const { return original_; }
  // The next one that has arrived.
  std::optional<int> next();

 private:
  sigset_t original_;
  Descriptor descriptor_;
};

}  // namespace rondo::launcher
